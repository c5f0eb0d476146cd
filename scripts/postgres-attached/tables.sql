-- Prepares the databases of Postgres' own tests for check.sh postgres. As soon as a plain table is created, it gets the
-- columns that a cache needs, and becomes a cache if tests.attach is on. Both runs have the columns, so only
-- cache_attach() can make a difference between the runs. Use no braces here, because isolationtester interprets them.
CREATE SCHEMA attached;
CREATE EXTENSION pgcache SCHEMA attached;
CREATE TABLE attached.tables (tab text, refused text);

-- Returns the prefix of the added columns. It contains the table's name, so that no NATURAL JOIN uses these columns.
CREATE FUNCTION attached.stem(tab regclass) RETURNS name LANGUAGE sql AS
    $$ SELECT left(relname, 50) FROM pg_class WHERE oid = tab $$;

-- Adds the columns of a cache. A smaller integer key becomes a bigint. A table without a primary key gets one.
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

-- Adds the columns, and attaches the table if tests.attach is on. Records a table that cannot have the columns or
-- cannot be attached, with the reason. A table that cannot have the columns is unchanged in both runs.
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
    -- The commands contain a table with a foreign key twice.
    PERFORM attached.attach(objid) FROM (SELECT DISTINCT objid FROM pg_event_trigger_ddl_commands()
        WHERE classid = 'pg_class'::regclass AND object_type = 'table') AS made;
END $$;
CREATE EVENT TRIGGER attached ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO')
    EXECUTE FUNCTION attached.made();
