-- The setup of check.sh postgres for the databases of Postgres' own tests: every plain table gets the columns that a cache
-- needs as soon as it is created, and where tests.attach is on it becomes a cache. Both runs have the columns, so what differs
-- between them is what cache_attach() has done. No braces in here: isolationtester would take them for its own.
CREATE SCHEMA attached;
CREATE EXTENSION pgcache SCHEMA attached;
CREATE TABLE attached.tables (tab text, refused text);

-- The columns have the name of their table: a NATURAL JOIN must not find them.
CREATE FUNCTION attached.stem(tab regclass) RETURNS name LANGUAGE sql AS
    $$ SELECT left(relname, 50) FROM pg_class WHERE oid = tab $$;

-- A short key becomes a bigint, and what has none gets one.
CREATE FUNCTION attached.add_columns(tab regclass, key OUT name) LANGUAGE plpgsql AS $$
DECLARE
    stem name := attached.stem(tab);
    kind regtype;
BEGIN
    SELECT attname, atttypid INTO key, kind
      FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
     WHERE indrelid = tab AND indisprimary;
    IF key IS NULL THEN
        key := stem || '_key';
        EXECUTE format('ALTER TABLE %s ADD %I bigserial PRIMARY KEY', tab, key);
    ELSIF kind IN ('smallint'::regtype, 'integer'::regtype) THEN
        EXECUTE format('ALTER TABLE %s ALTER %I TYPE bigint', tab, key);
    END IF;
    EXECUTE format('ALTER TABLE %s ADD %I text, ADD %I timestamptz', tab, stem || '_value', stem || '_expires');
END $$;

-- A table that cannot be attached stays without, in both runs alike where it is the columns that it cannot have. Which
-- and why is noted.
CREATE FUNCTION attached.attach(tab regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    key name;
    stem name := attached.stem(tab);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class WHERE oid = tab AND relkind = 'r' AND relpersistence <> 't' AND NOT relispartition
                      AND reloftype = 0 AND NOT relrowsecurity)
        OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = tab)
    THEN
        RETURN;
    END IF;
    BEGIN
        key := attached.add_columns(tab);
    EXCEPTION WHEN OTHERS THEN
        INSERT INTO attached.tables VALUES (tab, 'no columns: ' || sqlerrm);
        RETURN;
    END;
    IF stem = 'comment_test' THEN
        INSERT INTO attached.tables VALUES (tab, 'its test needs another type of the key');
        RETURN;
    END IF;
    BEGIN
        IF current_setting('tests.attach')::boolean THEN
            PERFORM attached.cache_attach(tab, NULL, key, stem || '_value', stem || '_expires');
        END IF;
        INSERT INTO attached.tables VALUES (tab);
    EXCEPTION WHEN OTHERS THEN
        INSERT INTO attached.tables VALUES (tab, sqlerrm);
    END;
END $$;

CREATE FUNCTION attached.made() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET client_min_messages = error AS $$
BEGIN
    -- A table with a foreign key is there twice.
    PERFORM attached.attach(objid) FROM (SELECT DISTINCT objid FROM pg_event_trigger_ddl_commands()
        WHERE classid = 'pg_class'::regclass AND object_type = 'table') AS made;
END $$;
CREATE EVENT TRIGGER attached ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO')
    EXECUTE FUNCTION attached.made();
