-- Dropping the extension, installing it again, and installing it into a schema of its own. Must come last.
SELECT cache_create('left_behind', ttl => '1 hour');
SELECT cache_set('k', 'v', cache => 'left_behind');

-- Without CASCADE it says what stands in the way.
SELECT state, detail ~ 'left_behind' AS names_it, hint ~ 'CASCADE' AS hint FROM error_of('DROP EXTENSION pgcache');
SELECT cache_get('k', 'left_behind');

-- A function that runs while its extension goes.
CREATE FUNCTION without_extension() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    DROP EXTENSION pgcache CASCADE;
    RETURN '* * * * *';
END $$;
SET client_min_messages = warning;
SELECT state, message FROM error_of('SELECT cache_schedule_expiry(without_extension())');
RESET client_min_messages;

-- With CASCADE the tables stay, with their rows, as tables; pgcache.main goes with the extension.
SET client_min_messages = warning;
DROP EXTENSION pgcache CASCADE;
RESET client_min_messages;
SELECT key, value FROM left_behind;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'left_behind'::regclass;
SELECT to_regclass('pgcache.main'), to_regnamespace('pgcache');
SELECT count(*) FROM pg_proc WHERE proname LIKE 'cache\_%';

-- Again, in this session that has used it before.
SET client_min_messages = warning; -- a server without preload has something to say
CREATE EXTENSION pgcache;
RESET client_min_messages;
SELECT cache FROM pgcache.caches;
SELECT cache_set('k', 'v'), cache_get('k');
SELECT state FROM error_of($$SELECT cache_get('k', 'left_behind')$$);
SELECT state FROM error_of($$SELECT cache_create('left_behind', if_not_exists => true)$$);
DROP TABLE left_behind;
SELECT cache_create('left_behind'), cache_set('k', 'v', cache => 'pgcache.main');

-- When only pgcache.main is left, nothing stands in the way.
DROP TABLE left_behind;
DROP EXTENSION pgcache;

-- Into a schema of its own, which is not on the path.
CREATE SCHEMA "Cache Schema";
SET client_min_messages = warning; -- a server without preload has something to say
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

-- A schema pgcache that belongs to somebody else is not taken over.
CREATE SCHEMA pgcache;
SELECT state FROM error_of('CREATE EXTENSION pgcache');
DROP SCHEMA pgcache;
SET client_min_messages = warning; -- a server without preload has something to say
CREATE EXTENSION pgcache;
RESET client_min_messages;
