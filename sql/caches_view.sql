-- pgcache.caches has one row for each cache on which the current role has SELECT.
CREATE ROLE regress_pgcache_reader;
CREATE ROLE regress_pgcache_owner;
SET client_min_messages = warning;
GRANT CREATE ON SCHEMA public TO regress_pgcache_owner;
RESET client_min_messages;
SELECT cache_create('seen', ttl => '90 seconds', storage => 'logged', value_type => 'bytea', max_entries => 9, grace => '1 minute'), cache_create('unseen');
GRANT SELECT ON seen TO regress_pgcache_reader;
SET ROLE regress_pgcache_owner;
SELECT cache_create('own', value_type => 'jsonb');
RESET ROLE;

SET intervalstyle = postgres;
SELECT cache, storage, value_type, ttl, max_entries, grace FROM pgcache.caches ORDER BY cache::text;
SET ROLE regress_pgcache_reader;
SELECT cache, storage, value_type, ttl, max_entries, grace FROM pgcache.caches ORDER BY cache::text;
SELECT state FROM error_of('SELECT * FROM pgcache.cache_settings(''unseen'')');
SET ROLE regress_pgcache_owner;
SELECT cache FROM pgcache.caches ORDER BY cache::text;
RESET ROLE;

-- The view follows changes of the table.
ALTER TABLE seen RENAME TO renamed;
ALTER TABLE renamed SET UNLOGGED;
ALTER TABLE renamed ALTER COLUMN value TYPE text USING encode(value, 'escape');
SELECT cache, storage, value_type FROM pgcache.caches WHERE cache::text = 'renamed';
-- A cache whose table is no longer valid does not make the view fail.
ALTER TABLE unseen DROP COLUMN expires_at;
SELECT cache, storage, ttl, hides_expired IS NOT NULL AS says_more FROM pgcache.caches ORDER BY cache::text;
DROP TABLE renamed, unseen, own;
SELECT cache FROM pgcache.caches ORDER BY cache::text;
SELECT obj_description('pgcache.caches'::regclass) <> '' AS comment;

REVOKE CREATE ON SCHEMA public FROM regress_pgcache_owner;
DROP ROLE regress_pgcache_reader, regress_pgcache_owner;
