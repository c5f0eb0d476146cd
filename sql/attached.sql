-- Postgres may rebuild its copy of a table's triggers at any catalog look-up, because an ANALYZE in any session
-- invalidates that copy. With debug_discard_caches, every look-up rebuilds it.
SET client_min_messages = warning;
-- An attached table whose marker is one of several triggers.
CREATE TABLE attached (note int, k varchar(20) PRIMARY KEY, v text, e bigint);
SELECT cache_attach('attached', '1 hour', 'k', 'v', 'e', expires_unit => 's');
INSERT INTO attached VALUES (1, 'a', 'old', 5), (2, 'b', 'live', NULL);
SELECT k, v FROM attached;
INSERT INTO attached (k, v) VALUES ('a', 'new') ON CONFLICT (k) DO UPDATE SET v = excluded.v || '?';
SELECT k, v FROM attached ORDER BY k;
UPDATE attached SET v = 'changed' WHERE k = 'b';
SELECT cache_set('c', 'set', cache => 'attached'), cache_get('c', 'attached'), cache_get('b', 'attached');
SELECT key, value FROM cache_scan(cache => 'attached');
SELECT cache, storage, ttl FROM pgcache.caches WHERE cache = 'attached'::regclass;
-- A source on which several caches depend.
CREATE TABLE source_of_two (id varchar(20));
SELECT cache_create('second');
SELECT cache_depend('source_of_two', 'id', 'attached'), cache_depend('source_of_two', 'id', 'second');
SELECT cache_set('c', 'set', cache => 'second');
INSERT INTO source_of_two VALUES ('c');
SELECT cache_exists('c', 'attached'), cache_exists('c', 'second');
SELECT cache_set('c', 'set', cache => 'attached'), cache_set('c', 'set', cache => 'second');
ALTER TABLE source_of_two ADD COLUMN other int;
SELECT cache_exists('c', 'attached'), cache_exists('c', 'second');
-- Before a delete with the owner's rights, the triggers are checked. The last trigger runs another role's function.
CREATE ROLE regress_pgcache_other;
GRANT DELETE ON second TO regress_pgcache_other;
CREATE FUNCTION ours() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
ALTER FUNCTION theirs OWNER TO regress_pgcache_other;
CREATE TRIGGER a BEFORE DELETE ON second FOR EACH ROW WHEN (OLD.key <> lower('X')) EXECUTE FUNCTION ours();
CREATE TRIGGER b BEFORE DELETE ON second FOR EACH ROW WHEN (OLD.key <> upper('x')) EXECUTE FUNCTION ours();
SELECT cache_set('d', 'set', cache => 'second');
SET ROLE regress_pgcache_other;
SELECT cache_delete('d', 'second');
RESET ROLE;
CREATE TRIGGER z BEFORE DELETE ON second FOR EACH ROW EXECUTE FUNCTION theirs();
SELECT cache_set('d', 'set', cache => 'second');
SET ROLE regress_pgcache_other;
SELECT cache_delete('d', 'second');
RESET ROLE;
SELECT cache_alter('attached', '2 hours');
SELECT cache_detach('attached');
SELECT k, v FROM attached WHERE e = 5;
DROP TABLE attached, source_of_two, second;
DROP FUNCTION ours, theirs;
DROP ROLE regress_pgcache_other;
