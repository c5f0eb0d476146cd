-- cache_depend: a change of a source row removes the entries that were computed from it.
-- Loads the library with each session: otherwise cache_depend raises a notice about the changes that it would miss.
SELECT current_database() AS here \gset
ALTER DATABASE :"here" SET session_preload_libraries = 'pgcache';
\c -
CREATE TABLE src (id int PRIMARY KEY, name text, n int);
INSERT INTO src SELECT i, 'n' || i, 0 FROM generate_series(1, 9) AS i;
SELECT cache_create('c');
SELECT cache_depend('src', $$'p:' || id$$, 'c');
SELECT tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'src'::regclass ORDER BY 1;
-- An equal declaration changes nothing.
SELECT cache_depend('src', $$'p:' || src.id$$, 'c');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'src'::regclass;

CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS
    $$ SELECT cache_set('p:' || i, 'v', cache => 'c') FROM generate_series(1, 20) AS i $$;
CREATE FUNCTION gone() RETURNS text LANGUAGE sql AS
    $$ SELECT string_agg(i::text, ' ' ORDER BY i) FROM generate_series(1, 20) AS i WHERE NOT cache_exists('p:' || i, 'c') $$;

-- Each kind of row change removes the entries of the old and of the new key.
SELECT fill(); UPDATE src SET n = 1 WHERE id = 1; SELECT gone();
SELECT fill(); UPDATE src SET id = 12 WHERE id = 2; SELECT gone();
SELECT fill(); DELETE FROM src WHERE id = 3; SELECT gone();
SELECT fill(); INSERT INTO src VALUES (3, 'n3', 0), (13, 'n13', 0); SELECT gone();
SELECT fill();
COPY src FROM stdin;
14	n14	0
15	n15	0
\.
SELECT gone();
SELECT fill(); INSERT INTO src VALUES (4), (16) ON CONFLICT (id) DO UPDATE SET n = 2; SELECT gone();
SELECT fill();
MERGE INTO src USING (VALUES (5), (6), (17)) AS v (id) ON src.id = v.id
    WHEN MATCHED AND v.id = 5 THEN DELETE WHEN MATCHED THEN UPDATE SET n = 3 WHEN NOT MATCHED THEN INSERT VALUES (v.id);
SELECT gone();
SELECT fill(); SET session_replication_role = replica; UPDATE src SET n = 4 WHERE id = 7; RESET session_replication_role; SELECT gone();

-- The changing session no longer finds entries of the old row; a rollback brings all of them back.
SELECT fill();
BEGIN; UPDATE src SET n = 5 WHERE id = 7; SELECT gone(); ROLLBACK;
SELECT gone();
BEGIN; SAVEPOINT s; UPDATE src SET n = 5 WHERE id = 7; SELECT gone(); ROLLBACK TO s; SELECT gone(); UPDATE src SET n = 5 WHERE id = 8; COMMIT;
SELECT gone();
SELECT fill();
BEGIN; SAVEPOINT s; UPDATE src SET n = 6 WHERE id = 7; RELEASE s; SAVEPOINT t; SELECT gone(); ROLLBACK TO t; SELECT gone(); COMMIT;
SELECT gone();
-- An entry that the transaction itself stores is removed, too: it may have been computed before the last change.
SELECT fill();
BEGIN; UPDATE src SET n = 7 WHERE id = 7; SELECT cache_set('p:7', 'mine', cache => 'c'); SELECT gone(); COMMIT;
SELECT gone();
-- A transaction that becomes read-only after its write.
SELECT fill();
BEGIN; UPDATE src SET n = 8 WHERE id = 7; SET TRANSACTION READ ONLY; COMMIT;
SELECT gone();

-- Key values that no entry can have: NULL, empty, too long.
SELECT cache_create('named');
SELECT cache_depend('src', 'name', 'named');
UPDATE src SET name = NULL WHERE id = 7;
UPDATE src SET name = '' WHERE id = 7;
UPDATE src SET name = repeat('x', 3000) WHERE id = 7;

-- A key of several columns: any of them may change, be NULL, or be in the TOAST table.
SELECT cache_create('several');
SELECT cache_depend('src', $$coalesce(left(name, 3), 'none') || '/' || n$$, 'several');
CREATE FUNCTION kept() RETURNS text LANGUAGE sql AS $$
    SELECT cache_set_many(ARRAY['aaa/1', 'bbb/1', 'bbb/2', 'none/2'], ARRAY['v', 'v', 'v', 'v'], cache => 'several');
$$;
UPDATE src SET name = 'aaa' || (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) AS i), n = 1 WHERE id = 9;
SELECT kept(); UPDATE src SET name = 'bbb' || substr(name, 4) WHERE id = 9; SELECT key FROM several ORDER BY 1;
SELECT kept(); UPDATE src SET n = 2 WHERE id = 9; SELECT key FROM several ORDER BY 1;
SELECT kept(); UPDATE src SET name = NULL WHERE id = 9; SELECT key FROM several ORDER BY 1;
SELECT kept(); UPDATE src SET id = 9 WHERE id = 9; SELECT key FROM several ORDER BY 1;
SELECT cache_drop('several');
DROP FUNCTION kept;

-- TRUNCATE clears the cache; a rollback undoes it.
SELECT fill();
BEGIN; TRUNCATE src; SELECT count(*) FROM cache_scan(cache => 'c'); ROLLBACK;
SELECT count(*) FROM c;
TRUNCATE src;
SELECT count(*) FROM c;

-- The dependency follows renames, and Postgres refuses to drop a column that the key uses.
ALTER TABLE src RENAME id TO number;
ALTER TABLE src RENAME TO source;
ALTER TABLE c RENAME TO renamed;
SELECT cache_set('p:1', 'v', cache => 'renamed');
INSERT INTO source VALUES (1);
SELECT cache_exists('p:1', 'renamed');
\set VERBOSITY sqlstate
ALTER TABLE source DROP COLUMN number;
\set VERBOSITY default

-- An expression that cannot be a key is refused at its declaration.
SELECT cache_depend('source', 'nothing', 'renamed');
SELECT cache_depend('source', 'n', 'renamed');
SELECT cache_depend('source', 'name || random()', 'renamed');
SELECT cache_depend('source', '(SELECT name)', 'renamed');
SELECT cache_depend('source', 'max(name)', 'renamed');
SELECT cache_depend('source', 'name, name', 'renamed');
SELECT cache_depend('source', 'DISTINCT name', 'renamed');
SELECT cache_depend('source', 'name; DROP TABLE source', 'renamed');
SELECT cache_depend('source', '', 'renamed');
SELECT cache_depend('source', NULL, 'renamed');
SELECT cache_depend(NULL, 'name', 'renamed');
SELECT cache_depend('source', 'name', NULL);
SELECT cache_depend('source', 'name', 'source');
SELECT cache_depend('source', 'name', 'pgcache.main');
SELECT cache_depend('pgcache.caches', 'name', 'renamed');
SELECT cache_undepend('source', 'pgcache.main');

-- cache_undepend removes one dependency, and dropping the cache removes the other.
SELECT cache_undepend('source', 'named');
SELECT tgname FROM pg_trigger WHERE tgrelid = 'source'::regclass ORDER BY 1;
DROP TABLE renamed;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'source'::regclass ORDER BY 1;
INSERT INTO source VALUES (2);

-- Partitions: rows are routed and moved, and partitions are attached and detached.
CREATE TABLE parts (id int, region text) PARTITION BY LIST (region);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a');
SELECT cache_create('c');
SELECT cache_depend('parts', $$'p:' || id$$, 'c');
CREATE TABLE parts_b (extra int, region text, id int);
ALTER TABLE parts_b DROP COLUMN extra;
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
SELECT fill(); INSERT INTO parts VALUES (1, 'a'), (2, 'b'); SELECT gone();
SELECT fill(); INSERT INTO parts_b VALUES ('b', 3); SELECT gone();
SELECT fill(); UPDATE parts SET region = 'a', id = 13 WHERE id = 3; SELECT gone();
SELECT fill(); SET session_replication_role = replica; DELETE FROM parts WHERE id = 2; RESET session_replication_role; SELECT gone();
SELECT fill(); TRUNCATE parts_a; SELECT count(*) FROM c;
SELECT fill(); TRUNCATE parts; SELECT count(*) FROM c;
ALTER TABLE parts DETACH PARTITION parts_b;
SELECT fill(); INSERT INTO parts_b VALUES ('b', 4); SELECT gone();
DROP TABLE c;
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgcache_depend%';
INSERT INTO parts VALUES (1, 'a');

-- The removal runs with the rights of the source's owner at the time of the change; the writer needs none on the cache.
CREATE ROLE depend_owner; CREATE ROLE depend_writer;
SELECT cache_create('c');
CREATE TABLE owned (k text); ALTER TABLE owned OWNER TO depend_owner;
GRANT INSERT ON owned TO depend_writer;
SET ROLE depend_owner;
SELECT cache_depend('owned', 'k', 'c');
SELECT cache_depend('source', 'name', 'c');
CREATE TRIGGER forged AFTER INSERT ON owned FOR EACH ROW WHEN (true OR pgcache.depends('c'::regclass, new.k)) EXECUTE FUNCTION pgcache.invalidate();
INSERT INTO owned VALUES ('p:1');
DROP TRIGGER forged ON owned;
RESET ROLE; GRANT DELETE ON c TO depend_owner; SET ROLE depend_owner;
CREATE FUNCTION pg_temp.whoami(k text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'evaluated by %', current_user; RETURN k; END $$;
SELECT cache_depend('owned', 'pg_temp.whoami(k)', 'c');
SET ROLE depend_writer; INSERT INTO owned VALUES ('p:1'); RESET ROLE;
CREATE DOMAIN pg_temp.checked AS text CHECK (pg_temp.whoami(value) IS NOT NULL);
SET ROLE depend_owner; SELECT cache_undepend('owned', 'c'); SELECT cache_depend('owned', 'k::pg_temp.checked', 'c');
SET ROLE depend_writer; INSERT INTO owned VALUES ('p:1'); RESET ROLE;
SELECT cache_set('p:2', 'v', cache => 'c');
INSERT INTO owned VALUES ('p:2');
SELECT cache_exists('p:2', 'c');
REVOKE DELETE ON c FROM depend_owner;
SET ROLE depend_writer; INSERT INTO owned VALUES ('p:1'); RESET ROLE;
CREATE TRIGGER nonsense AFTER INSERT ON source FOR EACH ROW EXECUTE FUNCTION pgcache.invalidate();
INSERT INTO source VALUES (3);
SELECT pgcache.invalidate();
-- The name of a trigger may contain anything, even SQL.
CREATE TABLE forged (k text); ALTER TABLE forged OWNER TO depend_owner;
GRANT DELETE ON c TO depend_owner;
SET ROLE depend_owner;
CREATE TRIGGER "x ON forged; ALTER ROLE depend_owner SUPERUSER --" AFTER INSERT ON forged FOR EACH ROW WHEN (true OR pgcache.depends('c'::regclass, new.k)) EXECUTE FUNCTION pgcache.invalidate();
CREATE TRIGGER "X" AFTER INSERT ON forged FOR EACH ROW WHEN (true OR pgcache.depends('c'::regclass, new.k)) EXECUTE FUNCTION pgcache.invalidate();
CREATE TRIGGER x AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION pgcache.record();
RESET ROLE;
SELECT cache_undepend('forged', 'c');
SELECT rolsuper FROM pg_roles WHERE rolname = 'depend_owner';
SELECT tgname FROM pg_trigger WHERE tgrelid = 'forged'::regclass;
DROP TABLE forged;
DROP TABLE owned, source, parts, parts_b, c, named;
DROP FUNCTION fill, gone;
DROP DOMAIN pg_temp.checked;
DROP FUNCTION pg_temp.whoami;
DROP ROLE depend_owner; DROP ROLE depend_writer;
ALTER DATABASE :"here" RESET session_preload_libraries;
