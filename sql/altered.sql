-- A table changes under a session that uses it as a cache and keeps plans for it.
\set VERBOSITY sqlstate
SELECT cache_create('alt', ttl => '1 hour', value_type => 'text');
CREATE FUNCTION use(cache regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cache_set('k', '42', cache => cache), cache_set('gone', '0', cache => cache), cache_incr('n', cache => cache), cache_delete('gone', cache);
    RETURN concat_ws(' ', cache_get('k', cache), cache_get('gone', cache), cache_get('n', cache), cache_exists('k', cache),
                     cache_ttl('k', cache) > '59 min', (SELECT count(*) FROM cache_scan(cache => cache)));
END $$;
-- A prepared statement refers to a cache by name, as to a table: it finds the cache that has the name when it runs.
PREPARE get AS SELECT cache_get('k', 'alt');
SELECT use('alt');
EXECUTE get;

ALTER TABLE alt RENAME TO alt2;
SELECT use('alt2');
EXECUTE get;
CREATE SCHEMA alt_schema;
ALTER TABLE alt2 SET SCHEMA alt_schema;
SELECT use('alt_schema.alt2');
ALTER SCHEMA alt_schema RENAME TO "Alt Schema";
SELECT use('"Alt Schema".alt2');
EXECUTE get;
-- Other caches take the old names.
CREATE SCHEMA alt_schema;
SELECT cache_create('alt_schema.alt2'), cache_create('alt');
SELECT cache_get('k', 'alt_schema.alt2'), cache_get('k', 'alt'), cache_set('k', 'other', cache => 'alt');
SELECT use('"Alt Schema".alt2');
EXECUTE get;
SELECT cache_drop('alt_schema.alt2'), cache_drop('alt');
ALTER TABLE "Alt Schema".alt2 SET SCHEMA public;
ALTER TABLE alt2 RENAME TO alt;
DROP SCHEMA "Alt Schema", alt_schema;

ALTER TABLE alt SET LOGGED;
SELECT use('alt'), storage FROM pgcache.caches WHERE cache = 'alt'::regclass;
ALTER TABLE alt SET UNLOGGED;
SELECT use('alt'), storage FROM pgcache.caches WHERE cache = 'alt'::regclass;
ALTER TABLE alt ADD COLUMN own int DEFAULT 1;
SELECT use('alt');
ALTER TABLE alt DROP COLUMN own;
SELECT use('alt');
ALTER TABLE alt SET (fillfactor = 50);
CLUSTER alt USING alt_pkey;
VACUUM FULL alt;
ANALYZE alt;
REINDEX TABLE alt;
SELECT use('alt');
ALTER INDEX alt_pkey RENAME TO other_name;
ALTER TABLE alt ALTER COLUMN expires_at TYPE timestamptz(0), ALTER COLUMN expires_at SET DEFAULT now();
SELECT use('alt');

-- The type of the values changes to jsonb, to bytea, and back.
ALTER TABLE alt ALTER COLUMN value TYPE jsonb USING value::jsonb;
SELECT use('alt'), cache_get_json('k', 'alt');
EXECUTE get;
ALTER TABLE alt ALTER COLUMN value TYPE bytea USING convert_to(value::text, 'UTF8');
SELECT use('alt'), cache_get_bytes('k', 'alt');
ALTER TABLE alt ALTER COLUMN value TYPE text USING convert_from(value, 'UTF8');
SELECT use('alt'), cache_get('k', 'alt');
EXECUTE get;

-- The error says why the table is no longer a cache; undoing the change makes it a cache again.
CREATE FUNCTION state_after(change text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE e record;
BEGIN
    EXECUTE change;
    SELECT * INTO e FROM error_of('SELECT use(''alt'')');
    RETURN e.state || ': ' || e.detail;
END $$;
BEGIN;
SELECT state_after('ALTER TABLE alt DROP COLUMN value');
ROLLBACK;
BEGIN;
SELECT state_after('ALTER TABLE alt DROP COLUMN expires_at');
ROLLBACK;
BEGIN;
SELECT state_after('ALTER TABLE alt RENAME COLUMN key TO id');
ROLLBACK;
BEGIN;
SELECT state_after('ALTER TABLE alt DROP CONSTRAINT other_name');
ROLLBACK;
BEGIN;
SELECT state_after('ALTER TABLE alt ALTER COLUMN value TYPE varchar');
ROLLBACK;
BEGIN;
SELECT state_after('ALTER TABLE alt ALTER COLUMN key TYPE text COLLATE "POSIX"');
ROLLBACK;
BEGIN;
SELECT state_after('ALTER TABLE alt ALTER COLUMN expires_at TYPE timestamp');
ROLLBACK;
BEGIN;
SELECT state_after('DROP TRIGGER pgcache_record ON alt');
ROLLBACK;
SELECT use('alt');
ALTER TABLE alt RENAME COLUMN value TO other;
ALTER TABLE alt RENAME COLUMN other TO value;
SELECT use('alt');

-- A cache dropped and created again under its name is a new cache, with its own settings and type.
SELECT cache_drop('alt');
SELECT state FROM error_of('EXECUTE get');
SELECT cache_create('alt', value_type => 'jsonb');
EXECUTE get;
SELECT cache_set('k', '{"new":   true}', cache => 'alt'), cache_ttl('k', 'alt');
EXECUTE get;
DROP TABLE alt;
CREATE TABLE alt (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
SELECT state FROM error_of('EXECUTE get');
DROP TABLE alt;

-- A copy by CREATE TABLE ... LIKE is a plain table, not a cache.
SELECT cache_create('alt');
CREATE TABLE like_alt (LIKE alt INCLUDING ALL);
SELECT state FROM error_of($$SELECT cache_get('k', 'like_alt')$$);
DROP TABLE alt, like_alt;
DEALLOCATE get;
DROP FUNCTION use, state_after;
