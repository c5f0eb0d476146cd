-- The hot tier: the reads that it serves, its figures, and that it notices each change to the table.
SET pgcache.show_expired = on; -- lets plain SQL see the stored rows
\set VERBOSITY sqlstate
SELECT cache_create('hot'), cache_create('cold');
-- The figures of cache 'hot' on one line.
CREATE VIEW figures AS
SELECT format('hits %s+%s, misses %s, sets %s, deletes %s, entries %s', hot_hits, table_hits, misses, sets, deletes, hot_entries) AS figures
  FROM pgcache.stats WHERE cache = 'hot'::regclass;

-- A miss; then a set, a first read from the table, and later reads from the tier.
TABLE figures;
SELECT cache_get('k', 'hot');
TABLE figures;
SELECT cache_set('k', 'one', cache => 'hot');
SELECT cache_get('k', 'hot');
TABLE figures;
SELECT cache_get('k', 'hot');
SELECT cache_exists('k', 'hot');
SELECT cache_ttl('k', 'hot');
SELECT found, value FROM cache_lookup('k', 'hot');
TABLE figures;
SELECT * FROM cache_get_many('{k,none}', 'hot');
TABLE figures;
-- A negative entry is a hit, an expired one a miss.
SELECT cache_set('neg', NULL, cache => 'hot');
SELECT cache_exists('neg', 'hot');
SELECT cache_exists('neg', 'hot');
SELECT cache_set('soon', 'v', '30 ms', 'hot');
SELECT count(cache_get('soon', 'hot')) <= 1 AS once;
SELECT pg_sleep(0.05);
SELECT cache_get('soon', 'hot');
SELECT count(*) FROM pgcache.verify('hot');

-- reset_stats resets the figures and keeps the entries.
SELECT pgcache.reset_stats('hot');
SELECT hot_hits, table_hits, misses, sets, deletes, expired, evicted, invalidated, hot_entries > 0 AS entries, hot_bytes > 0 AS bytes
  FROM pgcache.stats WHERE cache = 'hot'::regclass;
SELECT cache_delete('neg', 'hot'), cache_delete('soon', 'hot'), cache_delete('none', 'hot');
SELECT sets, deletes FROM pgcache.stats WHERE cache = 'hot'::regclass;

-- Reads bypass the tier with hot_tier off, after a write of the transaction, and under REPEATABLE READ.
CREATE FUNCTION read_from(OUT value text, OUT place text) LANGUAGE plpgsql AS $$
DECLARE before bigint[];
BEGIN
    SELECT ARRAY[hot_hits, table_hits] INTO before FROM pgcache.stats WHERE cache = 'hot'::regclass;
    value := cache_get('k', 'hot');
    SELECT CASE WHEN hot_hits > before[1] THEN 'tier' WHEN table_hits > before[2] THEN 'table' ELSE 'miss' END
      INTO place FROM pgcache.stats WHERE cache = 'hot'::regclass;
END $$;
SELECT * FROM read_from();
SET pgcache.hot_tier = off;
SELECT * FROM read_from();
RESET pgcache.hot_tier;
BEGIN;
SELECT * FROM read_from();
SELECT cache_set('k', 'two', cache => 'hot');
SELECT * FROM read_from();
ROLLBACK;
SELECT * FROM read_from();
BEGIN;
INSERT INTO cold VALUES ('any table will do', 'x', NULL);
SELECT * FROM read_from();
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM read_from();
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT * FROM read_from();
COMMIT;
BEGIN READ ONLY;
SELECT * FROM read_from();
COMMIT;
SELECT * FROM read_from();
ALTER TABLE hot ENABLE ROW LEVEL SECURITY;
SELECT * FROM read_from();
ALTER TABLE hot DISABLE ROW LEVEL SECURITY;
SELECT * FROM read_from();
SELECT * FROM read_from();

-- After each kind of change to the table: the value, its origin, and both again at the next read.
CREATE PROCEDURE change(statement text) LANGUAGE plpgsql AS $$
DECLARE r record; s record;
BEGIN
    PERFORM cache_get('k', 'hot');
    COMMIT;
    EXECUTE statement;
    COMMIT;
    SELECT * INTO r FROM read_from();
    SELECT * INTO s FROM read_from();
    RAISE NOTICE '%: % (%), then % (%), row %, differences %', statement, coalesce(r.value, 'none'), r.place, coalesce(s.value, 'none'), s.place,
        coalesce((SELECT value FROM hot WHERE key = 'k'), 'none'), (SELECT count(*) FROM pgcache.verify('hot'));
END $$;
\set VERBOSITY terse
CALL change($$UPDATE hot SET value = 'updated' WHERE key = 'k'$$);
CALL change($$DELETE FROM hot$$);
CALL change($$INSERT INTO hot VALUES ('k', 'inserted')$$);
CALL change($$INSERT INTO hot VALUES ('k', 'upserted') ON CONFLICT (key) DO UPDATE SET value = excluded.value$$);
CALL change($$UPDATE hot SET key = 'moved' WHERE key = 'k'$$);
CALL change($$UPDATE hot SET key = 'k', value = 'moved back'$$);
CALL change($$UPDATE hot SET expires_at = clock_timestamp() - interval '1 s'$$);
CALL change($$UPDATE hot SET expires_at = 'infinity'$$);
CALL change($$MERGE INTO hot USING (SELECT 'k' AS key) AS s ON hot.key = s.key WHEN MATCHED THEN UPDATE SET value = 'merged'$$);
CALL change($$TRUNCATE hot$$);
CALL change($$SELECT cache_set('k', 'set again', cache => 'hot')$$);
CALL change($$SELECT cache_clear('hot')$$);
CALL change($$SELECT cache_add('k', 'added', cache => 'hot')$$);
CALL change($$SELECT cache_cas('k', 'added', 'swapped', cache => 'hot')$$);
CALL change($$SELECT cache_touch('k', '1 hour', 'hot')$$);
CALL change($$ALTER TABLE hot ADD COLUMN more int DEFAULT 1$$);
CALL change($$ALTER TABLE hot ALTER COLUMN value TYPE text USING value || '!'$$);
CALL change($$ALTER TABLE hot DROP COLUMN more$$);
CALL change($$ALTER TABLE hot SET LOGGED$$);
CALL change($$SELECT cache_alter('hot', max_entries => 1000)$$);
CALL change($$ALTER TABLE hot DISABLE TRIGGER pgcache_record$$);
CALL change($$UPDATE hot SET value = 'unseen by the trigger'$$);
CALL change($$ALTER TABLE hot ENABLE TRIGGER pgcache_record$$);
CALL change($$ALTER TABLE hot ENABLE ALWAYS TRIGGER pgcache_record$$);
CALL change($$ALTER TABLE hot DISABLE TRIGGER USER$$);
CALL change($$UPDATE hot SET value = 'unseen again'$$);
CALL change($$ALTER TABLE hot ENABLE ALWAYS TRIGGER pgcache_record$$);
CALL change($$ALTER TABLE hot ENABLE ALWAYS TRIGGER pgcache_record_truncate$$);
SET session_replication_role = replica;
CALL change($$UPDATE hot SET value = 'as a replica'$$);
RESET session_replication_role;
CALL change($$DO 'BEGIN UPDATE hot SET value = ''rolled back''; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END'$$);
ALTER TABLE hot RENAME TO hot_renamed;
SELECT cache_get('k', 'hot_renamed');
SELECT cache_get('k', 'hot_renamed');
ALTER TABLE hot_renamed RENAME TO hot;
CALL change($$SELECT cache_delete('k', 'hot')$$);
\set VERBOSITY sqlstate

-- A value longer than hot_max_value is read from the table each time.
SELECT cache_set('k', repeat('x', 1024 * 1024 + 1), cache => 'hot');
SELECT length(value), place FROM read_from();
SELECT length(value), place FROM read_from();
SELECT cache_set('k', repeat('x', 1024 * 1024), cache => 'hot');
SELECT length(value), place FROM read_from();
SELECT length(value), place FROM read_from();

-- A hand-made temporary cache gets no copies in the tier, because other sessions must not read it.
CREATE TEMP TABLE temporary (LIKE hot INCLUDING ALL);
CREATE TRIGGER r AFTER INSERT OR UPDATE OR DELETE ON temporary FOR EACH ROW EXECUTE FUNCTION pgcache.record();
CREATE TRIGGER t BEFORE TRUNCATE ON temporary FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate();
ALTER TABLE temporary ENABLE ALWAYS TRIGGER r, ENABLE ALWAYS TRIGGER t;
SELECT cache_set('k', 'v', cache => 'temporary');
SELECT cache_get('k', 'temporary');
SELECT cache_get('k', 'temporary');
SELECT hot_hits, table_hits, hot_entries FROM pgcache.stats WHERE cache = 'temporary'::regclass;
DROP TABLE temporary;

-- The figures of the tier add up, and no write is pending between mark and unmark.
SELECT size = used + free AS adds_up, used - bookkeeping - holes >= (SELECT sum(hot_bytes) FROM pgcache.stats) AS bytes_of_all,
       size <= pg_size_bytes(current_setting('pgcache.hot_size')) AS bounded, entries > 0 AS entries, pending FROM pgcache.hot_tier;
SELECT (SELECT entries FROM pgcache.hot_tier) >= (SELECT sum(hot_entries) FROM pgcache.stats) AS entries_of_all;
SELECT pgcache.reset_stats();
SELECT evictions, rejected, lock_waits FROM pgcache.hot_tier;

-- pg_monitor may read the figures, but not reset them.
CREATE ROLE regress_hot_user;
CREATE ROLE regress_hot_monitor IN ROLE pg_monitor;
SET ROLE regress_hot_user;
SELECT count(*) FROM pgcache.stats;
SELECT count(*) FROM pgcache.hot_tier;
SELECT pgcache.reset_stats();
SELECT * FROM pgcache.verify('hot');
RESET ROLE;
SET ROLE regress_hot_monitor;
SELECT count(*) > 0 AS stats FROM pgcache.stats;
SELECT count(*) FROM pgcache.hot_tier;
SELECT pgcache.reset_stats();
RESET ROLE;
DROP ROLE regress_hot_user, regress_hot_monitor;

-- A dropped cache leaves no figures.
SELECT 'hot'::regclass::oid AS oid \gset
SELECT count(*) FROM pgcache.figures() WHERE cache = :oid;
DROP TABLE hot, cold CASCADE;
SELECT count(*) FROM pgcache.figures() WHERE cache = :oid;
DROP PROCEDURE change;
DROP FUNCTION read_from;
