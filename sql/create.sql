-- Creating, altering and dropping caches, and the names that they may have.
\set VERBOSITY sqlstate
CREATE SCHEMA create_test;
SET search_path = create_test, public;

SELECT cache_create('plain');
SELECT cache_create('full', ttl => '5 minutes', storage => 'logged', value_type => 'jsonb',
                    max_entries => 1000, grace => '30 seconds');
SELECT cache_create('raw', value_type => 'bytea');
SELECT storage, value_type, ttl = '5 minutes' AS ttl, max_entries, grace = '30 seconds' AS grace
  FROM pgcache.caches WHERE cache = 'full'::regclass;
SELECT relname, relpersistence, relowner = current_user::regrole AS mine
  FROM pg_class WHERE oid IN ('plain'::regclass, 'full'::regclass, 'raw'::regclass) ORDER BY relname;

-- Names are parsed like any SQL name.
SELECT cache_create('FOLDED'), to_regclass('folded');
SELECT cache_create('"Quoted Name"'), to_regclass('"Quoted Name"');
SELECT cache_create('create_test.qualified'), to_regclass('create_test.qualified');
SELECT cache_create('Create_Test."With.Dot"'), to_regclass('create_test."With.Dot"');
SELECT cache_create('"with ""quote"" and ''tick''"');
SELECT cache_create('größe');
SELECT cache_create('select');
SELECT cache_set('k', 'v', cache => '"with ""quote"" and ''tick''"'), cache_set('k', 'v', cache => 'größe'),
       cache_set('k', 'v', cache => '"select"');
SELECT cache_get('k', '"with ""quote"" and ''tick''"'), cache_get('k', 'größe'), cache_get('k', '"select"');
SELECT cache_alter('"with ""quote"" and ''tick''"', ttl => '1 hour'), cache_clear('"select"');
-- A name is cut to 63 bytes at a character boundary: 62 bytes and a two-byte character become 62 bytes.
SELECT length(cache_create(repeat('n', 70))::text), length(cache_create('"' || repeat('m', 62) || 'ö"')::text);
SELECT cache_create(repeat('n', 70));
SELECT cache_create(repeat('n', 80), if_not_exists => true) = repeat('n', 63)::regclass AS same;

-- Invalid names, and schemas or databases that do not exist.
SELECT cache_create('');
SELECT cache_create('a.');
SELECT cache_create('two words');
SELECT cache_create('"open');
SELECT cache_create('no_such_schema.c');
SELECT cache_create('no_such_database.create_test.c');
SELECT cache_create(NULL);

-- The name of an existing cache, and of an existing relation that is not a cache.
SELECT cache_create('plain');
SELECT cache_create('plain', ttl => '1 day', if_not_exists => true);
SELECT ttl FROM pgcache.caches WHERE cache = 'plain'::regclass;
CREATE TABLE no_cache (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
CREATE VIEW a_view AS SELECT 1 AS one;
CREATE SEQUENCE a_sequence;
SELECT cache_create('no_cache');
SELECT cache_create('no_cache', if_not_exists => true);
SELECT cache_create('a_view', if_not_exists => true);
SELECT cache_create('a_sequence', if_not_exists => true);
SELECT cache_create('no_cache_pkey', if_not_exists => true);
-- The same name in another schema of the search_path is another relation.
SELECT cache_create('public.plain'), cache_create('create_test.plain', if_not_exists => true);
SELECT cache_drop('public.plain');

-- Invalid arguments.
SELECT cache_create('bad', storage => 'disk');
SELECT cache_create('bad', storage => 'UNLOGGED');
SELECT cache_create('bad', storage => '');
SELECT cache_create('bad', storage => NULL);
SELECT cache_create('bad', value_type => 'integer');
SELECT cache_create('bad', value_type => 'varchar');
SELECT cache_create('bad', value_type => 'json');
SELECT cache_create('bad', value_type => NULL);
SELECT cache_create('bad', ttl => '0');
SELECT cache_create('bad', ttl => '-1 second');
SELECT cache_create('bad', max_entries => -1);
SELECT cache_create('bad', grace => '-1 second');
-- Temporary caches are refused, because a sweep in another session could not read them.
SELECT cache_create('pg_temp.bad');
SELECT cache_create('pg_temp.bad', storage => 'logged');
SELECT to_regclass('bad');
SELECT cache_create('endless', ttl => cache_forever()), cache_create('unbound', max_entries => 0, grace => '0');
SELECT cache, ttl, max_entries, grace FROM pgcache.caches WHERE cache IN ('endless'::regclass, 'unbound'::regclass) ORDER BY cache::text;

-- cache_alter: NULL leaves a setting unchanged; cache_forever(), 0 and '0' remove it.
CREATE VIEW settings AS SELECT ttl::text, max_entries, grace::text FROM pgcache.caches WHERE cache = 'plain'::regclass;
SET intervalstyle = postgres;
SELECT cache_alter('plain', ttl => '1 hour 2.5 seconds');
TABLE settings;
SELECT cache_alter('plain', max_entries => 5);
TABLE settings;
SELECT cache_alter('plain', grace => '1 mon 2 days 3.000001 seconds');
TABLE settings;
SELECT cache_alter('plain');
SELECT cache_alter('plain', NULL, NULL, NULL);
TABLE settings;
SELECT cache_alter('plain', ttl => cache_forever());
TABLE settings;
SELECT cache_alter('plain', max_entries => 0);
TABLE settings;
SELECT cache_alter('plain', grace => '0');
TABLE settings;
SELECT cache_alter('plain', ttl => '1 mon -1 day -00:00:00.5', grace => '-1 day 25 hours');
TABLE settings;
SELECT cache_alter('plain', ttl => '0');
SELECT cache_alter('plain', ttl => '-1 hour');
SELECT cache_alter('plain', max_entries => -1);
SELECT cache_alter('plain', grace => '-1 ms');
TABLE settings;
SELECT cache_alter('no_cache', ttl => '1 hour');
SELECT cache_alter('a_view', ttl => '1 hour');
SELECT cache_alter(NULL, ttl => '1 hour');
SET intervalstyle = iso_8601;
SELECT cache_alter('plain', ttl => 'P1Y2M3DT4H5M6.789S');
SET intervalstyle = sql_standard;
SELECT cache_alter('plain', max_entries => 7);
SET intervalstyle = postgres;
TABLE settings;
RESET intervalstyle;
-- cache_alter keeps the entries, the privileges and the oid.
SELECT cache_set('kept', 'v', cache => 'plain');
SELECT cache_alter('plain', ttl => '1 hour'), cache_get('kept', 'plain');

-- cache_drop and DROP TABLE remove a cache completely.
DROP VIEW settings;
SELECT cache_drop('plain'), to_regclass('plain');
DROP TABLE raw;
SELECT cache_drop('no_cache');
SELECT cache_drop('a_view');
SELECT cache_drop('pg_class');
SELECT cache_drop(NULL);
SELECT cache_drop('gone');
SELECT cache_drop(0);
SELECT cache_drop(4294967295);
CREATE VIEW over_full AS SELECT key FROM "full";
SELECT cache_drop('full');
DROP VIEW over_full;
SELECT cache_drop('full');
SELECT count(*) FROM pgcache.caches WHERE cache::text LIKE '%plain%' OR cache::text LIKE '%full%' OR cache::text LIKE '%raw%';

-- A rollback undoes the creation, the entries and the drop of a cache.
BEGIN;
SELECT cache_create('undone');
SELECT cache_set('k', 'v', cache => 'undone');
ROLLBACK;
SELECT to_regclass('undone');
BEGIN;
SELECT cache_drop('folded');
ROLLBACK;
SELECT cache_set('k', 'v', cache => 'folded'), cache_get('k', 'folded');

SET client_min_messages = warning;
DROP SCHEMA create_test CASCADE;
