-- Adds expired copies of some rows, under keys that no sequence generates. If a statement shows or counts a copy, the
-- output of a test differs.
CREATE FUNCTION attached.add_expired(tab regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    stem name := attached.stem(tab);
    others text := (SELECT string_agg(format('%I, ', attname), '' ORDER BY attnum) FROM pg_attribute
                     WHERE attrelid = tab AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
                       AND attname NOT IN (stem || '_key', stem || '_expires'));
BEGIN
    EXECUTE format('INSERT INTO %1$s (%2$s %3$I, %4$I) SELECT %2$s -%3$I, ''2001-01-01'' FROM ONLY %1$s WHERE %3$I %% 10 = 1',
                   tab, others, stem || '_key', stem || '_expires');
END $$;

-- Attaches the tables that test_setup has created, and then vacuums and analyzes them, as test_setup does.
SET client_min_messages = warning;
DO $$ BEGIN
    PERFORM attached.attach(oid) FROM (SELECT oid FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname) AS tables;
    IF current_setting('tests.attach')::boolean THEN
        PERFORM attached.add_expired(tab::regclass) FROM attached.tables WHERE refused IS NULL;
    END IF;
END $$;
SELECT format('VACUUM ANALYZE %s', tab) FROM attached.tables \gexec
