-- Plain SQL and functions on the same table, and user-defined columns, indexes and triggers.
SELECT cache_create('plain');

-- Plain SQL and the functions see each other's changes at once.
INSERT INTO plain VALUES ('i', 'inserted', NULL), ('u', 'old', NULL), ('d', 'x', NULL), ('e', 'x', clock_timestamp() + interval '1 hour');
SELECT cache_get('i', 'plain'), cache_get('u', 'plain'), cache_ttl('e', 'plain') > '59 min' AS hour;
UPDATE plain SET value = 'new' WHERE key = 'u';
DELETE FROM plain WHERE key = 'd';
UPDATE plain SET expires_at = clock_timestamp() WHERE key = 'e';
SELECT cache_get('u', 'plain'), cache_exists('d', 'plain'), cache_get('e', 'plain');
UPDATE plain SET key = 'renamed' WHERE key = 'u';
SELECT cache_get('u', 'plain'), cache_get('renamed', 'plain');
INSERT INTO plain VALUES ('i', 'upserted') ON CONFLICT (key) DO UPDATE SET value = excluded.value;
SELECT cache_get('i', 'plain'), cache_set('i', 'by function', cache => 'plain');
SELECT value FROM plain WHERE key = 'i';
MERGE INTO plain AS p USING (VALUES ('i', 'merged'), ('m', 'merged')) AS v (key, value) ON p.key = v.key
  WHEN MATCHED THEN UPDATE SET value = v.value WHEN NOT MATCHED THEN INSERT VALUES (v.key, v.value);
SELECT cache_get('i', 'plain'), cache_get('m', 'plain');
TRUNCATE plain;
SELECT cache_get('i', 'plain'), cache_exists('m', 'plain');
COPY plain FROM stdin;
c1	copied	\N
c2	\N	\N
\.
SELECT cache_get('c1', 'plain'), cache_exists('c2', 'plain'), cache_delete('c2', 'plain');
COPY plain TO stdout;

-- Joins, and calls for each row of another table.
SELECT v.k, p.value, cache_get(v.k, 'plain') FROM (VALUES ('c1'), ('none')) AS v (k) LEFT JOIN plain AS p ON p.key = v.k;
SELECT count(cache_set('n' || i, i::text, cache => 'plain')) FROM generate_series(1, 2) AS i;
WITH written AS (INSERT INTO plain VALUES ('w', 'with') RETURNING key) SELECT key FROM written;
SELECT count(*) FROM plain WHERE cache_get(key, 'plain') = value;
UPDATE plain SET value = cache_get(key, 'plain') || '!' WHERE key = 'c1' RETURNING value, cache_get(key, 'plain');
DELETE FROM plain USING cache_scan('n', cache => 'plain') AS s WHERE plain.key = s.key RETURNING plain.key;
DO $$
DECLARE got text;
BEGIN
    FOR i IN 1 .. 20 LOOP
        PERFORM cache_set('loop', i::text, cache => 'plain');
        got := cache_get('loop', 'plain');
        ASSERT got = i::text;
        IF i % 5 = 0 THEN COMMIT; END IF;
    END LOOP;
END $$;
SELECT cache_get('loop', 'plain');
-- Prepared statements, with generic plans too, and cursors.
SET plan_cache_mode = force_generic_plan;
PREPARE get (text) AS SELECT cache_get($1, 'plain');
EXECUTE get ('loop');
SELECT cache_set('loop', 'again', cache => 'plain');
EXECUTE get ('loop');
RESET plan_cache_mode;
DEALLOCATE get;
BEGIN;
DECLARE cur CURSOR FOR SELECT key, cache_get(key, 'plain') FROM plain ORDER BY key;
FETCH 1 FROM cur;
SELECT cache_set('c1', 'changed', cache => 'plain'), cache_delete('loop', 'plain');
FETCH 1 FROM cur;
-- cache_clear fails while the same session has the table in use.
SELECT state FROM error_of($$SELECT cache_clear('plain')$$);
COMMIT;

-- In a parallel plan reads run in the leader; a write makes the plan serial.
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL max_parallel_workers_per_gather = 2;
CREATE TABLE many AS SELECT 'c1' AS key FROM generate_series(1, 20000);
ANALYZE many;
SELECT cache_set('c1', 'one', cache => 'plain');
SELECT count(cache_get(key, 'plain')), count(DISTINCT cache_get(key, 'plain')) FROM many;
SELECT sum(cache_incr('parallel', cache => 'plain')) = 500 * 501 / 2 AS sum FROM (SELECT FROM many LIMIT 500) AS few;
ROLLBACK;

-- User-defined columns with a default, generated, and NOT NULL: an overwrite keeps their values.
ALTER TABLE plain ADD COLUMN hits int NOT NULL DEFAULT 7, ADD COLUMN size int GENERATED ALWAYS AS (length(value)) STORED;
SELECT cache_set('col', 'abc', cache => 'plain');
UPDATE plain SET hits = 8 WHERE key = 'col';
SELECT cache_set('col', 'abcd', cache => 'plain'), cache_incr('counter', cache => 'plain'), cache_touch('col', '1 hour', 'plain');
SELECT key, value, hits, size FROM plain WHERE key IN ('col', 'counter') ORDER BY key;
-- Column names that pgcache's own statements use, an index, a check.
ALTER TABLE plain ADD COLUMN c text, ADD COLUMN excluded int, ADD COLUMN live boolean, ADD COLUMN k text, ADD COLUMN "$1" int;
CREATE INDEX ON plain (size);
CREATE UNIQUE INDEX plain_value ON plain (value) WHERE key LIKE 'unique%';
ALTER TABLE plain ADD CONSTRAINT short CHECK (length(value) < 100);
SELECT cache_set('unique1', 'same', cache => 'plain'), cache_incr('counter', cache => 'plain'), cache_add('unique3', 'other', cache => 'plain'), cache_take('unique3', 'plain'),
       cache_set_many('{a1,a2}', '{x,y}', cache => 'plain'), cache_replace('a1', 'z', cache => 'plain'), cache_cas('a1', 'z', 'zz', cache => 'plain');
SELECT state FROM error_of($$SELECT cache_set('unique2', 'same', cache => 'plain')$$);
SELECT state FROM error_of($$SELECT cache_set_many('{a3,a4}', ARRAY['x', repeat('y', 100)], cache => 'plain')$$);
SELECT cache_exists('a3', 'plain'), cache_expire('plain');

-- User-defined triggers: one writes another table, one changes the value, one skips the row.
CREATE TABLE seen (op text, key text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen VALUES (TG_OP, coalesce(NEW.key, OLD.key));
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON plain FOR EACH ROW EXECUTE FUNCTION note();
SELECT cache_set('t', '1', cache => 'plain'), cache_incr('t', cache => 'plain'), cache_delete('t', 'plain');
SELECT * FROM seen;
DROP TRIGGER note ON plain;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key LIKE 'no:%' THEN RETURN NULL; END IF;
    NEW.value := upper(NEW.value);
    RETURN NEW;
END $$;
CREATE TRIGGER change BEFORE INSERT OR UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION change();
SELECT cache_set('t', 'loud', cache => 'plain'), cache_get('t', 'plain'), cache_cas('t', 'LOUD', 'louder', cache => 'plain'), cache_get('t', 'plain');
SELECT cache_set('no:1', 'v', cache => 'plain'), cache_add('no:1', 'v', cache => 'plain'), cache_incr('no:2', cache => 'plain'), cache_exists('no:1', 'plain');
DROP TRIGGER change ON plain;
-- A trigger that calls functions on its own cache.
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key = 'outer' THEN PERFORM cache_set('inner', NEW.value, cache => 'plain'), cache_get('outer', 'plain'); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER again AFTER INSERT OR UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION again();
SELECT cache_set('outer', 'v', cache => 'plain'), cache_get('inner', 'plain'), cache_set('outer', 'w', cache => 'plain'), cache_get('inner', 'plain');
DROP TRIGGER again ON plain;
-- A rule on DELETE, and an inheritance child, whose rows do not belong to the cache.
CREATE RULE noted AS ON DELETE TO plain DO ALSO INSERT INTO seen VALUES ('RULE', OLD.key);
SELECT cache_set('ruled', 'v', cache => 'plain'), cache_delete('ruled', 'plain'), cache_exists('ruled', 'plain');
SELECT * FROM seen WHERE op = 'RULE';
DROP RULE noted ON plain;
CREATE TABLE child () INHERITS (plain);
INSERT INTO child (key, value) VALUES ('only in child', 'v');
SELECT cache_get('only in child', 'plain'), cache_delete('only in child', 'plain'), (SELECT count(*) FROM cache_scan('only', cache => 'plain'));
SELECT cache_clear('plain'), (SELECT count(*) FROM child);

DROP TABLE plain, child, seen;
DROP FUNCTION note, change, again;
