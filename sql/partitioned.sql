-- A partitioned table as a cache: its partitions hold the entries by key.
SET client_min_messages = warning;
CREATE TABLE sessions (note int, sid varchar(40) PRIMARY KEY, body jsonb, until bigint) PARTITION BY HASH (sid);
CREATE TABLE sessions_0 PARTITION OF sessions FOR VALUES WITH (MODULUS 3, REMAINDER 0);
-- A partition with another order of columns, and a dropped column.
CREATE TABLE sessions_1 (until bigint, gone text, body jsonb, sid varchar(40) NOT NULL, note int);
ALTER TABLE sessions_1 DROP COLUMN gone;
ALTER TABLE sessions ATTACH PARTITION sessions_1 FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE sessions_2 PARTITION OF sessions FOR VALUES WITH (MODULUS 3, REMAINDER 2) PARTITION BY HASH (sid);
CREATE TABLE sessions_2_0 PARTITION OF sessions_2 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SELECT cache_attach('sessions', '1 hour', 'sid', 'body', 'until', expires_unit => 's', max_entries => 1000);
SELECT cache, storage, value_type, ttl, max_entries, hides_expired FROM pgcache.caches WHERE cache::text LIKE 'sessions%';
-- Every partition gets the DEFAULT of the deadline.
SELECT c.relname, a.atthasdef FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
 WHERE c.relname LIKE 'sessions%' AND c.relkind IN ('r', 'p') AND a.attname = 'until' ORDER BY 1;

-- Every function on the partitioned cache.
SELECT count(cache_set('k' || n, n::text, cache => 'sessions')) FROM generate_series(1, 30) AS n;
SELECT tableoid::regclass AS partition, count(*) > 0 AS has_some, bool_and(until > extract(epoch FROM clock_timestamp()) + 3500) AS hour FROM sessions GROUP BY 1 ORDER BY 1;
SELECT cache_get('k7', 'sessions'), cache_get('k31', 'sessions'), cache_exists('k8', 'sessions'), cache_count('sessions');
SELECT cache_add('k1', '0', cache => 'sessions'), cache_add('k31', '31', cache => 'sessions'), cache_replace('k32', '0', cache => 'sessions');
SELECT cache_incr('k1', 5, cache => 'sessions'), cache_incr('counter', 2, cache => 'sessions'), cache_cas('k2', '2', '22', cache => 'sessions');
SELECT cache_touch('k3', '2 hours', 'sessions'), cache_ttl('k3', 'sessions') > '119 minutes', cache_persist('k3', 'sessions'), cache_ttl('k3', 'sessions');
SELECT key, value FROM cache_get_many(ARRAY['k5', 'none', 'k4'], 'sessions');
SELECT cache_set_many(ARRAY['m1', 'm2', 'm3'], ARRAY['1', '2', '3'], cache => 'sessions'), cache_delete_many(ARRAY['m1', 'none'], 'sessions');
SELECT key, value FROM cache_scan('k2', max_rows => 4, cache => 'sessions');
SELECT key, value FROM cache_scan('k2', after => 'k21', max_rows => 3, cache => 'sessions');
SELECT cache_delete_prefix('k2', 'sessions'), cache_delete_if('k1', '6', 'sessions'), cache_take('k4', 'sessions');
SELECT cache_fetch('fetched', 'SELECT ''"from the source"''::text', cache => 'sessions');
SELECT state FROM cache_lease('leased', cache => 'sessions');
SELECT cache_count('sessions');
-- A partition is not itself a cache.
SELECT cache_get('k7', 'sessions_1');
SELECT cache_expire('sessions_2');
SELECT cache_attach('sessions_1', key_column => 'sid', value_column => 'body', expires_column => 'until');
SELECT cache_clear('sessions');
SELECT count(*) FROM sessions;

-- Expired rows are absent through the whole table and through each partition, whatever the column numbers there.
SET pgcache.show_expired = on;
INSERT INTO sessions SELECT n, 'k' || n, to_jsonb(n), CASE WHEN n % 2 = 0 THEN 5 END FROM generate_series(1, 60) AS n;
SELECT count(*) FROM sessions;
RESET pgcache.show_expired;
SELECT count(*), count(*) FILTER (WHERE note % 2 = 0) AS expired FROM sessions;
SELECT count(*) FILTER (WHERE note % 2 = 0) AS expired FROM sessions_0;
SELECT count(*) FILTER (WHERE note % 2 = 0) AS expired FROM sessions_1;
SELECT count(*) FILTER (WHERE note % 2 = 0) AS expired FROM sessions_2;
SELECT count(*) FILTER (WHERE note % 2 = 0) AS expired FROM sessions_2_0;
SELECT count(*) FROM sessions AS a JOIN sessions_1 AS b USING (sid) WHERE b.note % 2 = 0;
SELECT count(*) FROM cache_scan(max_rows => 100, cache => 'sessions');
-- Writes replace expired rows: through the whole table, through a partition, across partitions, and by COPY.
INSERT INTO sessions (sid, body) VALUES ('k2', '"new"') RETURNING sid, body, until > 1000 AS has_ttl;
INSERT INTO sessions (sid, body) VALUES ('k4', '"new"') ON CONFLICT DO NOTHING RETURNING body;
INSERT INTO sessions (sid, body) VALUES ('k6', '"new"') ON CONFLICT (sid) DO UPDATE SET body = sessions.body || '"old"' RETURNING body;
UPDATE sessions SET sid = 'k8' WHERE sid = 'k1' RETURNING body;
UPDATE sessions SET sid = 'k10' WHERE sid = 'k3' RETURNING body;
UPDATE sessions SET sid = 'k12' WHERE sid = 'k5' RETURNING body;
MERGE INTO sessions AS s USING (VALUES ('k14')) AS v (k) ON s.sid = v.k
 WHEN MATCHED THEN UPDATE SET body = '"changed"' WHEN NOT MATCHED THEN INSERT (sid, body) VALUES (v.k, '"merged"');
DO $$
DECLARE part regclass; k text;
BEGIN
    FOR part, k IN SELECT tableoid::regclass, min(sid) FROM sessions AS pgcache_c WHERE until = 5 GROUP BY 1 ORDER BY 1 LOOP
        EXECUTE format('INSERT INTO %s (sid, body) VALUES (%L, ''"straight"'')', part, k);
    END LOOP;
END $$;
SELECT body, count(*), bool_and(until > 1000) AS has_ttl FROM sessions WHERE jsonb_typeof(body) = 'string' GROUP BY 1 ORDER BY 1;
SELECT key, value FROM cache_get_many(ARRAY['k8', 'k10', 'k12', 'k14'], 'sessions');
COPY sessions (sid, body) FROM stdin;
k50	"copied"
k52	"copied"
k54	"copied"
\.
SELECT sid, body FROM sessions WHERE body = '"copied"' ORDER BY sid;
CREATE TABLE plain_copy AS SELECT tableoid::regclass AS part, sid FROM sessions AS pgcache_c WHERE until = 5;
SELECT bool_or(cache_exists(sid, 'sessions')) FROM plain_copy;

-- A sweep visits the partitions one after the other.
SELECT count(*) = (SELECT count(*) FROM plain_copy) AS all_of_them FROM sessions AS pgcache_c WHERE until = 5;
SELECT cache_expire('sessions', 3);
SELECT cache_expire('sessions', 1000) + 3 = (SELECT count(*) FROM plain_copy) AS all_of_them;
SELECT count(*) FROM sessions AS pgcache_c WHERE until = 5;
SELECT cache_alter('sessions', max_entries => 10), cache_expire('sessions');
SELECT count(*) FROM sessions;
SELECT bytes > 0 AS has_bytes FROM pgcache.stats WHERE cache = 'sessions'::regclass;

-- Partitions are attached and detached with their rows.
CREATE TABLE logs (key text COLLATE "C", value text, expires_at timestamptz) PARTITION BY LIST (key);
SELECT cache_attach('logs');
ALTER TABLE logs ADD PRIMARY KEY (key);
SELECT cache_attach('logs', '1 hour');
SELECT cache_set('a', 'nowhere', cache => 'logs');
CREATE TABLE logs_a PARTITION OF logs FOR VALUES IN ('a', 'b');
SELECT cache_set('a', '1', cache => 'logs');
CREATE TABLE logs_c (expires_at timestamptz, value text, key text COLLATE "C" PRIMARY KEY);
INSERT INTO logs_c VALUES ('-infinity', 'dead', 'c'), (NULL, 'live', 'd');
ALTER TABLE logs ATTACH PARTITION logs_c FOR VALUES IN ('c', 'd', 'e');
SELECT key, value FROM cache_scan(cache => 'logs');
SELECT key, value FROM logs_c;
INSERT INTO logs_c (key, value) VALUES ('e', 'of a partition that keeps its own default'), ('c', 'again');
SELECT key, value, expires_at IS NULL AS for_ever FROM logs ORDER BY key;
ALTER TABLE logs DETACH PARTITION logs_c;
SELECT cache_get('d', 'logs');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'logs_c'::regclass AND NOT tgisinternal;
UPDATE logs_c SET expires_at = '-infinity';
SELECT count(*) FROM logs_c;
ALTER TABLE logs ATTACH PARTITION logs_c FOR VALUES IN ('c', 'd', 'e');
SELECT count(*) FROM logs_c;
SELECT cache_expire('logs'), cache_alter('logs', cache_forever()), cache_tune('logs', ttl_jitter => 0.1);
SELECT relname, atthasdef FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
 WHERE c.relname IN ('logs', 'logs_a', 'logs_c') AND a.attname = 'expires_at' ORDER BY 1;
-- A cache cannot be a partition of another cache.
SELECT cache_create('alone');
ALTER TABLE logs ATTACH PARTITION alone DEFAULT;
SELECT cache_drop('alone');
-- A table with a cache among its partitions cannot become a cache, because the partition's own trigger would be lost.
CREATE TABLE above (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY LIST (key);
CREATE TABLE above_a PARTITION OF above FOR VALUES IN ('a') PARTITION BY LIST (key);
SELECT cache_create('alone');
SELECT cache_set('a', 'alone', cache => 'alone');
ALTER TABLE above_a ATTACH PARTITION alone DEFAULT;
SELECT cache_attach('above');
SELECT cache_get('a', 'alone'), cache_detach('alone');
SELECT cache_attach('above'), count(*) FROM above;
SELECT cache_get('a', 'above');
DROP TABLE above;
-- Entries with a dependency, and a transaction that is rolled back.
CREATE TABLE source (id text);
SELECT cache_depend('source', 'id', 'logs'), cache_set('b', 'made of a source', cache => 'logs');
BEGIN;
INSERT INTO source VALUES ('a'), ('b');
SELECT cache_get('a', 'logs'), cache_get('b', 'logs');
ROLLBACK;
SELECT cache_get('b', 'logs');
INSERT INTO source VALUES ('b');
SELECT cache_get('a', 'logs'), cache_get('b', 'logs');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT cache_get('a', 'logs');
SELECT cache_set('a', 'mine', cache => 'logs'), cache_get('a', 'logs'), cache_delete('a', 'logs'), cache_get('a', 'logs');
ROLLBACK;

-- The policies of the whole table apply to the functions; a sweep by a role that is subject to them removes nothing.
CREATE ROLE regress_pgcache_parts;
GRANT SELECT, INSERT, UPDATE, DELETE ON logs TO regress_pgcache_parts;
SET pgcache.show_expired = on;
UPDATE logs SET expires_at = '-infinity' WHERE key = 'a';
RESET pgcache.show_expired;
SET ROLE regress_pgcache_parts;
SELECT cache_set('b', 'theirs', cache => 'logs'), cache_get('b', 'logs');
-- A role that may write the whole table needs no privileges on a partition.
SELECT cache_expire('logs');
RESET ROLE;
ALTER TABLE logs ENABLE ROW LEVEL SECURITY;
CREATE POLICY not_b ON logs USING (key <> 'b');
INSERT INTO logs VALUES ('a', 'dead', '-infinity');
SET ROLE regress_pgcache_parts;
SELECT cache_get('b', 'logs'), cache_expire('logs');
RESET ROLE;
SELECT cache_get('b', 'logs'), cache_expire('logs');
-- A sweep removes the rows of a partition with the rights of the partition's owner.
ALTER TABLE logs DISABLE ROW LEVEL SECURITY;
ALTER TABLE logs_a OWNER TO regress_pgcache_parts;
INSERT INTO logs VALUES ('a', 'dead', '-infinity');
CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'removed as %', current_user; RETURN OLD; END $$;
ALTER FUNCTION who OWNER TO regress_pgcache_parts;
CREATE TRIGGER who BEFORE DELETE ON logs_a FOR EACH ROW EXECUTE FUNCTION who();
SELECT cache_expire('logs') AS named;
-- A dependency does not run a partition's trigger with the rights of the owner: the change of the source fails.
INSERT INTO source VALUES ('b');
DROP TRIGGER who ON logs_a;
DROP FUNCTION who;

-- cache_detach turns the cache into a plain table again.
SELECT cache_undepend('source', 'logs'), cache_detach('logs');
SELECT count(*) FROM pg_trigger WHERE tgrelid IN ('logs'::regclass, 'logs_a'::regclass, 'logs_c'::regclass) AND NOT tgisinternal;
SELECT count(*) FROM logs_c;
SELECT cache_get('a', 'logs');
SELECT cache_detach('sessions');
SELECT c.relname, a.atthasdef FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
 WHERE c.relname LIKE 'sessions%' AND c.relkind IN ('r', 'p') AND a.attname = 'until' ORDER BY 1;
-- A partitioned cache that was made by hand.
CREATE TABLE by_hand (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY HASH (key);
CREATE TABLE by_hand_0 PARTITION OF by_hand FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON by_hand FOR EACH ROW EXECUTE FUNCTION pgcache.record('ttl=PT3600S');
SELECT cache_set('k2', 'v', cache => 'by_hand'), cache_get('k2', 'by_hand'), cache_ttl('k2', 'by_hand') > '59 minutes';
-- Postgres refuses a foreign partition below a primary key.
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE by_hand_1 PARTITION OF by_hand FOR VALUES WITH (MODULUS 2, REMAINDER 1) SERVER elsewhere;
CREATE TABLE wide (key text COLLATE "C", value text, expires_at timestamptz) PARTITION BY LIST (key);
CREATE FOREIGN TABLE wide_1 PARTITION OF wide DEFAULT SERVER elsewhere;
SELECT cache_attach('wide');
DROP TABLE sessions, logs, by_hand, wide, source, plain_copy;
DROP FOREIGN DATA WRAPPER nowhere CASCADE;
DROP ROLE regress_pgcache_parts;
