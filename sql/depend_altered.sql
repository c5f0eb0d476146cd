-- cache_depend: changes of a source by DDL and by indirect writes.
-- Loads the library with each session: otherwise cache_depend raises a notice about the changes that it would miss.
SELECT current_database() AS here \gset
ALTER DATABASE :"here" SET session_preload_libraries = 'pgcache';
\c -
\set VERBOSITY terse
SELECT cache_create('c');
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS
    $$ SELECT cache_set('p:' || i, 'v', cache => 'c') FROM generate_series(1, 9) AS i $$;
CREATE FUNCTION left_of() RETURNS text LANGUAGE sql AS
    $$ SELECT coalesce(string_agg(i::text, ' ' ORDER BY i), 'none') FROM generate_series(1, 9) AS i WHERE cache_exists('p:' || i, 'c') $$;
CREATE TABLE src (id int PRIMARY KEY, v text, n int);
INSERT INTO src SELECT i, 'v' || i, i FROM generate_series(1, 5) AS i;
SELECT cache_depend('src', $$'p:' || id$$, 'c');

-- Columns: a new type with or without a rewrite, new values in all rows, a column added or dropped.
SELECT fill(); ALTER TABLE src ALTER COLUMN v TYPE text USING upper(v); SELECT left_of();
SELECT fill(); ALTER TABLE src ALTER COLUMN n TYPE bigint; SELECT left_of();
SELECT fill(); ALTER TABLE src ALTER COLUMN v TYPE varchar; SELECT left_of();
SELECT fill(); ALTER TABLE src ADD COLUMN d float DEFAULT random(); SELECT left_of();
SELECT fill(); ALTER TABLE src ADD COLUMN e int DEFAULT 7; SELECT left_of();
SELECT fill(); ALTER TABLE src DROP COLUMN e; SELECT left_of();
SELECT fill(); DO $$ BEGIN EXECUTE 'ALTER TABLE src ALTER COLUMN v TYPE text USING lower(v)'; END $$; SELECT left_of();
-- The altering session sees the removal at once; a rollback undoes it.
SELECT fill();
BEGIN; ALTER TABLE src ALTER COLUMN v TYPE text USING v || '!'; SELECT left_of(); ROLLBACK; SELECT left_of();
BEGIN; SAVEPOINT s; ALTER TABLE src DROP COLUMN d; ROLLBACK TO s; COMMIT; SELECT left_of();
-- These commands change no row, so the entries stay.
ALTER TABLE src RENAME COLUMN n TO m; SELECT left_of();
ALTER TABLE src RENAME TO source; ALTER TABLE source RENAME TO src; SELECT left_of();
ALTER TABLE src ALTER COLUMN m SET STATISTICS 10, ALTER COLUMN m SET DEFAULT 3, ALTER COLUMN m SET NOT NULL; SELECT left_of();
ALTER TABLE src ADD CHECK (m > 0), SET (fillfactor = 50), ENABLE ROW LEVEL SECURITY; SELECT left_of();
CLUSTER src USING src_pkey; VACUUM FULL src; VACUUM src; REINDEX TABLE src; SELECT left_of();
ALTER TABLE src SET UNLOGGED; ALTER TABLE src SET LOGGED; SELECT left_of();
CREATE INDEX ON src (m); CREATE RULE r AS ON DELETE TO src WHERE old.id = 99 DO INSTEAD NOTHING; SELECT left_of();
GRANT SELECT ON src TO public; COMMENT ON TABLE src IS 'x'; ANALYZE src; SELECT left_of();
DROP RULE r ON src;

-- While the source's triggers are disabled, its changes are missed; enabling the triggers removes all entries.
ALTER TABLE src DISABLE TRIGGER USER; UPDATE src SET m = 10 WHERE id = 1; SELECT left_of();
ALTER TABLE src ENABLE TRIGGER USER; SELECT left_of();

-- Indirect changes of rows: through a view, a foreign key's cascade, a CTE, a rule, TRUNCATE CASCADE.
SELECT fill(); CREATE VIEW seen AS SELECT id, m FROM src; UPDATE seen SET m = 11 WHERE id = 1; SELECT left_of();
CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (2), (3);
ALTER TABLE src ADD COLUMN f int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE;
UPDATE src SET f = id WHERE id IN (2, 3);
SELECT fill(); UPDATE parent SET id = 8 WHERE id = 2; SELECT left_of();
DELETE FROM parent WHERE id = 3; SELECT left_of();
SELECT fill(); WITH w AS (UPDATE src SET m = 12 WHERE id = 4 RETURNING 1) SELECT count(*) FROM w; SELECT left_of();
CREATE RULE r AS ON INSERT TO parent DO ALSO UPDATE src SET m = 13 WHERE id = 5;
SELECT fill(); INSERT INTO parent VALUES (9); SELECT left_of();
DROP VIEW seen; DROP RULE r ON parent;
SELECT fill(); TRUNCATE parent RESTART IDENTITY CASCADE; SELECT left_of();

-- If dropping a column drops the key of a dependency, its entries are removed.
SELECT fill(); ALTER TABLE src DROP COLUMN id CASCADE; SELECT left_of();
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'src'::regclass AND tgname LIKE 'pgcache%';

-- The end of a dependency: dropping the source removes its entries, cache_undepend keeps them.
CREATE SCHEMA s;
CREATE TABLE s.src (id int); INSERT INTO s.src VALUES (1);
SELECT cache_depend('s.src', $$'p:' || id$$, 'c');
SELECT fill(); BEGIN; DROP TABLE s.src; SELECT left_of(); ROLLBACK; SELECT left_of();
DROP SCHEMA s CASCADE; SELECT left_of();
CREATE TABLE gone (id int); SELECT cache_depend('gone', $$'p:' || id$$, 'c');
SELECT fill(); DROP TABLE src; SELECT left_of();
SELECT fill(); SELECT cache_undepend('gone', 'c'); SELECT left_of();
CREATE SCHEMA s; CREATE TABLE s.src (id int); SELECT cache_create('s.c'); SELECT cache_depend('s.src', 'id::text', 's.c');
DROP SCHEMA s CASCADE;
SELECT fill(); BEGIN; CREATE TEMP TABLE passing (id int) ON COMMIT DROP; SELECT cache_depend('passing', $$'p:' || id$$, 'c'); INSERT INTO passing VALUES (3); COMMIT; SELECT left_of();

-- Attaching or detaching a partition changes the source by the rows of the partition.
CREATE TABLE parts (id int, region text, v text) PARTITION BY LIST (region);
SELECT cache_depend('parts', $$'p:' || id$$, 'c');
SELECT fill(); CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a'); SELECT left_of();
CREATE TABLE parts_b (v text, region text, id int); ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b'); SELECT left_of();
ALTER TABLE parts DETACH PARTITION parts_b; SELECT left_of();
INSERT INTO parts_b VALUES ('x', 'b', 2); SELECT left_of();
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b'); SELECT left_of();
SELECT fill(); ALTER TABLE parts DETACH PARTITION parts_b; SELECT left_of();
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT fill(); ALTER TABLE parts DETACH PARTITION parts_b CONCURRENTLY; SELECT left_of();
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT fill(); ALTER TABLE parts_b ALTER COLUMN region SET STATISTICS 5; SELECT left_of();
ALTER TABLE parts ALTER COLUMN v TYPE text USING v || '!'; SELECT left_of();
SELECT fill(); DROP TABLE parts_a; SELECT left_of();
DROP TABLE parts_b; SELECT left_of();
-- Partitions of partitions.
CREATE TABLE parts_c PARTITION OF parts FOR VALUES IN ('c', 'd') PARTITION BY LIST (region);
CREATE TABLE parts_d (id int, region text, v text); INSERT INTO parts_d VALUES (4, 'd');
SELECT fill(); ALTER TABLE parts_c ATTACH PARTITION parts_d FOR VALUES IN ('d'); SELECT left_of();
SELECT fill(); ALTER TABLE parts DETACH PARTITION parts_c; SELECT left_of();
DROP TABLE parts, parts_c;

-- Inheritance children, created before the declaration and after it.
CREATE TABLE base (id int, v text); CREATE TABLE child_a (extra int) INHERITS (base);
INSERT INTO child_a VALUES (1, 'x', 0), (2, 'x', 0);
SELECT cache_depend('base', $$'p:' || base.id$$, 'c');
SELECT fill(); UPDATE base SET v = 'y' WHERE id = 1; SELECT left_of();
SELECT fill(); UPDATE child_a SET v = 'y' WHERE id = 2; SELECT left_of();
SELECT fill(); ALTER TABLE base ALTER v TYPE text USING v || '!'; SELECT left_of();
SELECT fill(); DELETE FROM base WHERE id = 2; SELECT left_of();
SELECT fill(); TRUNCATE child_a; SELECT left_of();
SELECT fill(); CREATE TABLE child_b (CHECK (id > 2)) INHERITS (base); SELECT left_of();
INSERT INTO child_b VALUES (3, 'x'); SELECT left_of();
UPDATE base SET v = 'z'; SELECT left_of();
-- A child may join with rows in it, and with another order of columns.
CREATE TABLE child_c (other int, v text, id int); INSERT INTO child_c VALUES (0, 'x', 4);
SELECT fill(); BEGIN; ALTER TABLE child_c INHERIT base; ROLLBACK; SELECT left_of();
ALTER TABLE child_c INHERIT base; SELECT left_of();
SELECT fill(); UPDATE base SET v = 'q' WHERE id = 4; SELECT left_of();
CREATE TABLE grandchild () INHERITS (child_c); INSERT INTO grandchild VALUES (0, 'x', 5);
SELECT fill(); UPDATE base SET v = 'q' WHERE id = 5; SELECT left_of();
SELECT cache_depend('base', $$'p:' || base.id$$, 'c');
SELECT tgrelid::regclass, count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%' GROUP BY 1 ORDER BY 1;
SELECT fill(); ALTER TABLE child_c NO INHERIT base; SELECT left_of();
ALTER TABLE child_c INHERIT base;
SELECT fill(); DROP TABLE grandchild; SELECT left_of();
SELECT fill(); BEGIN; CREATE TABLE child_d () INHERITS (base); INSERT INTO child_d VALUES (6, 'x'); COMMIT; SELECT left_of();
SELECT fill(); DELETE FROM base WHERE id = 6; SELECT left_of();
SELECT cache_undepend('base', 'c');
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%';
DROP TABLE base CASCADE;

-- A child gets its parent's key, and the names in it mean the same objects, whatever the search_path at the commit.
CREATE TYPE kind AS ENUM ('p:'); CREATE FUNCTION keyed(kind, int) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1::text || $2';
CREATE TABLE named (id int); SELECT cache_depend('named', $$keyed('p:'::kind, id)$$, 'c');
SET search_path = public, pg_temp; CREATE DOMAIN pg_temp.kind AS text;
CREATE TABLE named_child () INHERITS (named);
SELECT refobjid::regtype = 'public.kind'::regtype AS the_parents, count(*) FROM pg_depend
	WHERE objid IN (SELECT oid FROM pg_trigger WHERE tgrelid = 'named_child'::regclass) AND refclassid = 'pg_type'::regclass GROUP BY 1;
SELECT fill(); INSERT INTO named_child VALUES (1); SELECT left_of();
RESET search_path; DROP DOMAIN pg_temp.kind; DROP TABLE named CASCADE; DROP FUNCTION keyed; DROP TYPE kind;

-- The removal runs with the source owner's rights, as for rows. Without them a DROP succeeds and keeps the entries.
CREATE ROLE altered_owner; GRANT DELETE ON c TO altered_owner; GRANT CREATE ON SCHEMA public TO altered_owner;
SET ROLE altered_owner; CREATE TABLE owned (id int, v text);
SELECT cache_depend('owned', $$'p:' || id$$, 'c'); RESET ROLE;
SELECT fill(); ALTER TABLE owned ALTER v TYPE text USING v || '.'; SELECT left_of();
SELECT fill(); REVOKE DELETE ON c FROM altered_owner;
ALTER TABLE owned ALTER v TYPE text USING v || '.';
ALTER TABLE owned RENAME v TO w; SELECT left_of();
DROP TABLE owned; SELECT left_of();
GRANT DELETE ON c TO altered_owner; SET ROLE altered_owner; CREATE TABLE owned (id int);
SELECT cache_depend('owned', $$'p:' || id$$, 'c'); RESET ROLE;
-- The functions of a key run as the table's owner, so a child of another owner first needs its own cache_depend.
CREATE TABLE strange (id int); ALTER TABLE strange INHERIT owned;
SELECT cache_depend('strange', $$'p:' || id$$, 'c'); ALTER TABLE strange INHERIT owned; DROP TABLE strange;
DROP OWNED BY altered_owner; DROP ROLE altered_owner;

-- COMMIT PREPARED removes the entries, ROLLBACK PREPARED keeps them.
CREATE TABLE src (id int, v text); SELECT cache_depend('src', $$'p:' || id$$, 'c');
SELECT cache_set('p:1', 'before', cache => 'c');
BEGIN; ALTER TABLE src ALTER v TYPE text USING v || '.'; PREPARE TRANSACTION 'altered'; ROLLBACK PREPARED 'altered';
SELECT cache_get('p:1', 'c');
BEGIN; ALTER TABLE src ALTER v TYPE text USING v || '.'; PREPARE TRANSACTION 'altered'; COMMIT PREPARED 'altered';
SELECT cache_get('p:1', 'c');
-- A transaction that adds an empty partition or child has no entries to remove.
CREATE TABLE parts (id int) PARTITION BY LIST (id); SELECT cache_depend('parts', 'id::text', 'c');
BEGIN; CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1); PREPARE TRANSACTION 'empty'; ROLLBACK PREPARED 'empty';
DROP TABLE parts;
BEGIN; CREATE TABLE child () INHERITS (src); PREPARE TRANSACTION 'child'; ROLLBACK PREPARED 'child';
-- A relation that is not a table cannot be a source.
CREATE MATERIALIZED VIEW stored AS SELECT 1 AS id; SELECT cache_depend('stored', 'id::text', 'c'); DROP MATERIALIZED VIEW stored;
DROP TABLE src, gone, parent, c; DROP FUNCTION fill, left_of;
ALTER DATABASE :"here" RESET session_preload_libraries;

-- An event trigger drops the source while cache_undepend runs.
BEGIN;
CREATE TABLE short_lived (id text);
SELECT cache_create('of_short_lived');
SELECT cache_depend('short_lived', 'id', 'of_short_lived');
CREATE FUNCTION drop_it() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN DROP TABLE IF EXISTS short_lived; END';
CREATE EVENT TRIGGER drop_it ON ddl_command_end WHEN TAG IN ('DROP TRIGGER') EXECUTE FUNCTION drop_it();
SELECT state FROM error_of($$SELECT cache_undepend('short_lived', 'of_short_lived')$$);
ROLLBACK;
