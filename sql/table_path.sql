-- Functions access plain tables directly and all other tables by plans, with equal results.
SET pgcache.table_path = auto;

-- Returns which access the calls in a statement used, and how often.
CREATE FUNCTION way(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE before record; after record; way text := '';
BEGIN
    SELECT * INTO before FROM pgcache.table_path_taken();
    EXECUTE statement;
    SELECT * INTO after FROM pgcache.table_path_taken();
    IF after.direct > before.direct THEN way := way || 'direct ' || after.direct - before.direct; END IF;
    IF after.plan > before.plan THEN way := trim(way || ' plan ' || after.plan - before.plan); END IF;
    RETURN way;
END $$;
-- Runs a set, a touch, an increment and a delete on a cache, and then a read; returns the access of each group.
CREATE FUNCTION ways(cache regclass, OUT writes text, OUT reads text) LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL pgcache.hot_tier = off;
    writes := way(format('SELECT cache_set(''w'', ''1'', NULL, %1$L), cache_touch(''w'', ''1 hour'', %1$L), cache_incr(''w'', 1, NULL, %1$L), cache_delete(''w'', %1$L)', cache));
    reads := way(format('SELECT cache_get(''w'', %L)', cache));
END $$;

SELECT cache_create('plain');
SELECT * FROM ways('plain');
SELECT way($$SELECT cache_set_many('{a,b,c}', '{1,2,3}', NULL, 'plain')$$);
SELECT way($$SELECT * FROM cache_get_many('{a,b,nobody}', 'plain')$$);
SELECT way($$SELECT cache_add('a', 'x', NULL, 'plain'), cache_replace('a', '4', NULL, 'plain'), cache_cas('a', '4', '5', NULL, 'plain'),
                    cache_cas('d', NULL, '6', NULL, 'plain'), cache_persist('a', 'plain'), cache_delete_if('b', '2', 'plain'), cache_take('c', 'plain')$$);
SELECT key, value FROM plain ORDER BY key;
SELECT cache_create('kept', storage => 'logged', value_type => 'jsonb');
SELECT * FROM ways('kept');

SET pgcache.table_path = plan;
SELECT * FROM ways('plain');
SET pgcache.table_path = auto;

-- With one snapshot for the whole transaction, writes leave conflicts to the executor.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM ways('plain');
ROLLBACK;

-- A user-defined trigger fires.
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.value := upper(NEW.value); RETURN NEW; END $$;
CREATE TRIGGER shout BEFORE INSERT OR UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION shout();
SELECT * FROM ways('plain');
SELECT cache_set('a', 'loud', cache => 'plain'), cache_get('a', 'plain');
DROP TRIGGER shout ON plain;
SELECT * FROM ways('plain');

-- A plain user-defined index is maintained by HOT and other updates; a unique one raises its error.
CREATE INDEX plain_value ON plain (value);
SELECT * FROM ways('plain');
SELECT cache_set('i' || i, 'v' || i % 7, cache => 'plain') IS NULL AS set FROM generate_series(1, 3) AS i;
SELECT cache_set('i1', 'moved', cache => 'plain');
SET enable_seqscan = off; SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT key FROM plain WHERE value = 'moved';
SELECT key FROM plain WHERE value = 'moved';
SELECT key FROM plain WHERE value = 'v1';
RESET enable_seqscan; RESET enable_bitmapscan;
DROP INDEX plain_value;
CREATE UNIQUE INDEX plain_unique ON plain (value);
SELECT * FROM ways('plain');
\set VERBOSITY sqlstate
SELECT cache_set('i2', 'moved', cache => 'plain');
\set VERBOSITY default
DROP INDEX plain_unique;
CREATE INDEX plain_expression ON plain (length(value));
SELECT * FROM ways('plain');
DROP INDEX plain_expression;
CREATE INDEX plain_partial ON plain (value) WHERE value > 'x';
SELECT * FROM ways('plain');
DROP INDEX plain_partial;

-- User-defined columns: updates keep a column that may be NULL; other columns require the executor.
ALTER TABLE plain ADD COLUMN dropped int DEFAULT 7;
ALTER TABLE plain DROP COLUMN dropped;
ALTER TABLE plain ADD COLUMN note text;
SELECT * FROM ways('plain');
UPDATE plain SET note = 'mine' WHERE key = 'i1';
SELECT cache_set('i1', 'again', cache => 'plain'), cache_touch('i1', '1 hour', 'plain'), cache_set('i9', 'new', cache => 'plain');
SELECT key, value, note, expires_at IS NULL AS forever FROM plain WHERE key IN ('i1', 'i9') ORDER BY key;
ALTER TABLE plain ADD COLUMN twice text GENERATED ALWAYS AS (value || value) STORED;
SELECT * FROM ways('plain');
SELECT cache_set('i1', 'x', cache => 'plain');
SELECT twice FROM plain WHERE key = 'i1';
ALTER TABLE plain DROP COLUMN twice;
ALTER TABLE plain ADD COLUMN made timestamptz DEFAULT now();
SELECT * FROM ways('plain');
SELECT cache_set('i10', 'x', cache => 'plain');
SELECT made IS NOT NULL AS made FROM plain WHERE key = 'i10';
ALTER TABLE plain DROP COLUMN made;
CREATE DOMAIN given AS text NOT NULL;
ALTER TABLE plain ADD COLUMN given given DEFAULT 'x';
ALTER TABLE plain ALTER COLUMN given DROP DEFAULT;
SELECT way($$SELECT cache_delete('i10', 'plain')$$);
\set VERBOSITY sqlstate
SELECT cache_set('i10', 'x', cache => 'plain');
\set VERBOSITY default
ALTER TABLE plain DROP COLUMN given;
SELECT * FROM ways('plain');

-- Constraints, foreign keys, rules and inheritance behave as in plain SQL.
ALTER TABLE plain ADD CONSTRAINT short CHECK (length(value) < 20);
\set VERBOSITY sqlstate
SELECT cache_set('long', repeat('x', 20), cache => 'plain');
\set VERBOSITY default
SELECT * FROM ways('plain');
ALTER TABLE plain DROP CONSTRAINT short;
ALTER TABLE plain ALTER COLUMN value SET NOT NULL;
\set VERBOSITY sqlstate
SELECT cache_set('null', NULL, cache => 'plain');
\set VERBOSITY default
SELECT * FROM ways('plain');
ALTER TABLE plain ALTER COLUMN value DROP NOT NULL;
CREATE TABLE parent (id text COLLATE "C" PRIMARY KEY);
INSERT INTO parent VALUES ('mine');
ALTER TABLE plain ADD FOREIGN KEY (note) REFERENCES parent;
SELECT * FROM ways('plain');
ALTER TABLE plain DROP CONSTRAINT plain_note_fkey;
CREATE RULE also AS ON DELETE TO plain DO ALSO NOTIFY deleted;
SELECT way($$SELECT cache_delete('i9', 'plain')$$);
DROP RULE also ON plain;
CREATE TABLE child () INHERITS (plain);
SELECT way($$SELECT cache_set('i9', 'x', cache => 'plain')$$);
DROP TABLE child;

-- Row-level security, also for a role that is not subject to it.
ALTER TABLE plain ENABLE ROW LEVEL SECURITY;
SELECT * FROM ways('plain');
ALTER TABLE plain DISABLE ROW LEVEL SECURITY;

-- The executor handles the row filters and replica identities of a published table.
SET client_min_messages = error;
CREATE PUBLICATION kept_only FOR TABLE kept;
RESET client_min_messages;
SELECT * FROM ways('kept');
DROP PUBLICATION kept_only;
SELECT * FROM ways('kept');

-- A rebuilt primary key, also by REINDEX CONCURRENTLY.
REINDEX TABLE kept;
REINDEX INDEX CONCURRENTLY kept_pkey;
SELECT * FROM ways('kept');

-- Another order of columns, and a key that is stored out of line in the caller's table.
CREATE TABLE odd (expires_at timestamptz, junk int, value text, key text COLLATE "C" PRIMARY KEY);
ALTER TABLE odd DROP COLUMN junk;
CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON odd FOR EACH ROW EXECUTE FUNCTION pgcache.record();
CREATE TRIGGER pgcache_record_truncate BEFORE TRUNCATE ON odd FOR EACH STATEMENT EXECUTE FUNCTION pgcache.record_truncate();
SELECT * FROM ways('odd');
SELECT cache_set('k', 'v', '1 hour', 'odd'), cache_set('n', NULL, cache => 'odd');
SELECT cache_get('k', 'odd'), found, value IS NULL AS negative FROM cache_lookup('n', 'odd');
SELECT expires_at > now() AS later, value, key FROM odd ORDER BY key;
CREATE TABLE source (k text COMPRESSION pglz);
ALTER TABLE source ALTER COLUMN k SET STORAGE EXTERNAL;
INSERT INTO source SELECT repeat('long key ', 220) FROM generate_series(1, 1);
ALTER TABLE source ALTER COLUMN k SET STORAGE EXTENDED;
INSERT INTO source SELECT repeat('short ', 340);
SELECT cache_set(k, k, cache => 'odd'), cache_get(k, 'odd') = k AS same, cache_delete(k, 'odd') FROM source;

-- A session sees its own writes at once, and not those that a savepoint has rolled back.
BEGIN;
SELECT cache_set('s', '1', cache => 'odd'), cache_get('s', 'odd');
SAVEPOINT a;
SELECT cache_set('s', '2', cache => 'odd'), cache_set('t', '2', cache => 'odd'), cache_delete('k', 'odd');
SELECT cache_get('s', 'odd'), cache_get('t', 'odd'), cache_get('k', 'odd');
ROLLBACK TO a;
SELECT cache_get('s', 'odd'), cache_get('t', 'odd'), cache_get('k', 'odd');
SELECT cache_incr('n', 5, cache => 'odd'), cache_incr('n', 5, cache => 'odd'), (SELECT value FROM odd WHERE key = 'n');
COMMIT;
SELECT key, value FROM odd ORDER BY key;
-- A call on a row that its own statement has updated.
WITH u AS (UPDATE odd SET value = '20' WHERE key = 'n' RETURNING key) SELECT cache_incr(key, 1, cache => 'odd') FROM u;
SELECT value FROM odd WHERE key = 'n';

-- The server's statistics count direct writes.
BEGIN;
SELECT n_tup_ins AS i, n_tup_upd AS u, n_tup_hot_upd AS h, n_tup_del AS d FROM pg_stat_xact_user_tables WHERE relname = 'odd' \gset
SELECT cache_set('new', '1', cache => 'odd'), cache_set('new', '2', cache => 'odd'), cache_delete('new', 'odd');
SELECT n_tup_ins - :i AS inserted, n_tup_upd - :u AS updated, n_tup_hot_upd - :h AS hot, n_tup_del - :d AS deleted FROM pg_stat_xact_user_tables WHERE relname = 'odd';
COMMIT;

-- Values in the TOAST table leave nothing behind when they are overwritten or removed.
SELECT cache_create('large');
CREATE FUNCTION large(salt text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(md5(i || salt), '') FROM generate_series(1, 500) AS i $$;
SELECT way($$SELECT cache_set('big', large('a'), cache => 'large')$$);
CREATE FUNCTION outside() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(DISTINCT chunk_id) FROM %s', (SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'large')) INTO n;
    RETURN n;
END $$;
SELECT outside();
SELECT cache_set('big', large('b'), cache => 'large'), cache_touch('big', '1 hour', 'large'), cache_set('other', large('c'), cache => 'large');
SELECT outside(), cache_get('big', 'large') = large('b') AS same;
SELECT cache_set('big', 'small', cache => 'large'), cache_get('big', 'large');
SELECT outside();
SELECT cache_set('big', value, cache => 'large') FROM large WHERE key = 'other';
SELECT outside(), cache_get('big', 'large') = large('c') AS same;
BEGIN;
SELECT cache_set('big', large('d'), cache => 'large'), cache_delete('other', 'large');
ROLLBACK;
SELECT outside(), cache_delete('big', 'large'), cache_take('other', 'large') = large('c') AS same;
SELECT outside();

DROP TABLE odd, source, parent, plain, kept, large;
DROP FUNCTION way(text), ways(regclass), shout(), large(text), outside();
DROP DOMAIN given;
RESET pgcache.table_path;
