-- A search_path that begins with the caller's own operators and functions changes nothing.
SELECT cache_create('public.path'), cache_create('public.path_json', value_type => 'jsonb'), cache_create('public.path_bytes', value_type => 'bytea');
SELECT cache_set('k', '1', cache => 'path'), cache_set('k', '1', cache => 'path_json'), cache_set('k', '1', cache => 'path_bytes');
CREATE SCHEMA trap;
CREATE FUNCTION trap.sprung(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'operator'; END $$;
CREATE FUNCTION trap.sprung(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'operator'; END $$;
CREATE FUNCTION trap.sprung(jsonb, jsonb) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'operator'; END $$;
CREATE FUNCTION trap.sprung(bytea, bytea) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'operator'; END $$;
DO $$
DECLARE op text; type text;
BEGIN
    FOREACH op IN ARRAY ARRAY['=', '<>', '<', '>', '<=', '>='] LOOP
        FOREACH type IN ARRAY ARRAY['text', 'timestamptz', 'jsonb', 'bytea'] LOOP
            EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %2$s, FUNCTION = trap.sprung)', op, type);
        END LOOP;
    END LOOP;
END $$;
CREATE FUNCTION trap.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'unnest'; END $$;
CREATE FUNCTION trap.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'unnest'; END $$;
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'clock'; END $$;
CREATE FUNCTION trap.convert_from(bytea, name) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'convert'; END $$;
CREATE FUNCTION trap.convert_to(text, name) RETURNS bytea LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'convert'; END $$;
CREATE FUNCTION trap.has_table_privilege(oid, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'privilege'; END $$;
CREATE DOMAIN trap.text AS pg_catalog.text CHECK (false);
CREATE DOMAIN trap.timestamptz AS pg_catalog.timestamptz CHECK (false);
CREATE DOMAIN trap.jsonb AS pg_catalog.jsonb CHECK (false);
CREATE TABLE trap.path (key pg_catalog.text COLLATE "C" PRIMARY KEY, value pg_catalog.text, expires_at pg_catalog.timestamptz);
CREATE TABLE trap.pg_trigger (i int);

-- A new session, so that every statement is planned under this search_path.
\c
SET search_path = trap, pg_catalog, public;
SET client_min_messages = warning;
SELECT public.cache_get('k', 'public.path'), public.cache_get('k', 'path_json'), public.cache_get('k', 'path_bytes');
SELECT public.cache_set('s', 'v', '1 hour', 'public.path'), public.cache_set_many('{a,b}', '{1,2}', '1 hour', 'public.path'), public.cache_add('c', '3', cache => 'public.path'),
       public.cache_replace('c', '4', cache => 'public.path'), public.cache_cas('c', '4', '5', cache => 'public.path'), public.cache_cas('d', NULL, '6', cache => 'public.path'),
       public.cache_incr('k', cache => 'public.path'), public.cache_touch('c', '1 hour', 'public.path'), public.cache_persist('c', 'public.path'), public.cache_get_touch('c', '1 hour', 'public.path');
SELECT public.cache_incr('k', cache => 'path_json'), public.cache_incr('k', cache => 'path_bytes'), public.cache_cas('k', '2', '3', cache => 'path_json'), public.cache_delete_if('k', '2', 'path_bytes'),
       public.cache_set_many_bytes('{x}', '{y}', cache => 'path_bytes');
SELECT key, value FROM public.cache_scan('', 'b', 2, 'public.path');
SELECT key, value FROM public.cache_get_many('{a,zz}', 'public.path');
SELECT found, value FROM public.cache_lookup('a', 'public.path');
SELECT public.cache_exists('a', 'public.path'), public.cache_ttl('a', 'public.path') IS NULL AS ttl, public.cache_delete('a', 'public.path'), public.cache_take('b', 'public.path'),
       public.cache_delete_many('{c}', 'public.path'), public.cache_delete_prefix('d', 'public.path'), public.cache_expire('public.path'), public.cache_expire();
SELECT cache::pg_catalog.text, storage FROM pgcache.caches WHERE cache::oid OPERATOR(pg_catalog.=) 'public.path'::regclass::oid;
SELECT public.cache_create('public.path2', ttl => '1 hour', value_type => 'pg_catalog.jsonb', max_entries => 3);
SELECT public.cache_alter('public.path2', grace => '1 hour'), public.cache_create('public.path2', if_not_exists => true);
SELECT public.cache_clear('public.path2'), public.cache_drop('public.path2');
-- The operators of the trap are in effect.
\set VERBOSITY sqlstate
SELECT 'a' = 'b'::pg_catalog.text;
-- An empty search_path, and one that changes between two calls.
SET search_path = '';
SELECT public.cache_set('k', 'v', cache => 'public.path'), public.cache_get('k', 'public.path'), public.cache_incr('n', cache => 'public.path_bytes');
SET search_path = trap, public;
SELECT public.cache_get('k', 'public.path');
RESET search_path;
SELECT cache_get('k', 'path'), cache_create('path3'), to_regclass('path3');

DROP SCHEMA trap CASCADE;
DROP TABLE path, path_json, path_bytes, path3;
