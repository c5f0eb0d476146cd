-- Dropping the extension, installing it again, and installing it into another schema. Must run last.
SELECT cache_create('left_behind', ttl => '1 hour');
SELECT cache_set('k', 'v', cache => 'left_behind');

-- Without CASCADE the error names the caches that depend on the extension.
SELECT state, detail ~ 'left_behind' AS names_it, hint ~ 'CASCADE' AS hint FROM error_of('DROP EXTENSION pgcache');
SELECT cache_get('k', 'left_behind');

-- A function drops its own extension while it runs.
CREATE FUNCTION without_extension() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    DROP EXTENSION pgcache CASCADE;
    RETURN '* * * * *';
END $$;
SET client_min_messages = warning;
SELECT state, message FROM error_of('SELECT cache_schedule_expiry(without_extension())');
RESET client_min_messages;

-- With CASCADE the caches stay as plain tables with their rows; pgcache.main is dropped with the extension.
SET client_min_messages = warning;
DROP EXTENSION pgcache CASCADE;
RESET client_min_messages;
SELECT key, value FROM left_behind;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'left_behind'::regclass;
SELECT to_regclass('pgcache.main'), to_regnamespace('pgcache');
SELECT count(*) FROM pg_proc WHERE proname LIKE 'cache\_%';

-- A new installation in the session that used the old one.
SET client_min_messages = warning; -- without preload the server raises a notice
CREATE EXTENSION pgcache;
RESET client_min_messages;
SELECT cache FROM pgcache.caches;
SELECT cache_set('k', 'v'), cache_get('k');
SELECT state FROM error_of($$SELECT cache_get('k', 'left_behind')$$);
SELECT state FROM error_of($$SELECT cache_create('left_behind', if_not_exists => true)$$);
DROP TABLE left_behind;
SELECT cache_create('left_behind'), cache_set('k', 'v', cache => 'pgcache.main');

-- With no cache but pgcache.main, DROP EXTENSION needs no CASCADE.
DROP TABLE left_behind;
DROP EXTENSION pgcache;

-- An installation into a schema that is not in the search_path.
CREATE SCHEMA "Cache Schema";
SET client_min_messages = warning; -- without preload the server raises a notice
CREATE EXTENSION pgcache SCHEMA "Cache Schema";
RESET client_min_messages;
SELECT count(*) AS elsewhere FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pgcache'
 WHERE (p.proname LIKE 'cache\_%' AND p.proname <> 'cache_settings') <> (p.pronamespace = '"Cache Schema"'::regnamespace);
SELECT "Cache Schema".cache_create('elsewhere', ttl => '1 hour');
SELECT "Cache Schema".cache_set('k', 'v'), "Cache Schema".cache_get('k'), "Cache Schema".cache_set('k', '1', cache => 'elsewhere'),
       "Cache Schema".cache_incr('k', cache => 'elsewhere'), "Cache Schema".cache_expire();
SELECT cache FROM pgcache.caches ORDER BY cache::text;
SELECT "Cache Schema".cache_drop('elsewhere');
DROP EXTENSION pgcache;
DROP SCHEMA "Cache Schema";

-- An existing schema pgcache is not taken over.
CREATE SCHEMA pgcache;
SELECT state FROM error_of('CREATE EXTENSION pgcache');
DROP SCHEMA pgcache;
SET client_min_messages = warning; -- without preload the server raises a notice
CREATE EXTENSION pgcache;
RESET client_min_messages;
