-- Two databases share no entries; the second has a server encoding other than UTF-8.
SELECT current_database() AS home \gset
SELECT cache_set('k', 'at home'), cache_create('shared_name');
SELECT cache_set('k', 'at home', cache => 'shared_name');
CREATE DATABASE regress_pgcache_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
\c regress_pgcache_latin1
SET client_encoding = 'UTF8';
\set VERBOSITY sqlstate
SET client_min_messages = warning; -- without preload the server raises a notice
CREATE EXTENSION pgcache;
RESET client_min_messages;
SELECT cache_get('k'), cache_exists('k'), to_regclass('shared_name');
SELECT cache_create('shared_name', value_type => 'bytea'), cache_create('t'), cache_create('j', value_type => 'jsonb');
SELECT cache_set('k', 'away'), cache_get('k');

-- A bytea cache stores the bytes that the text has in the server encoding.
SELECT cache_set('é', 'façade', cache => 'shared_name'), cache_get_bytes('é', 'shared_name'), cache_get('é', 'shared_name');
SELECT cache_set_bytes('latin', '\xe9', cache => 'shared_name'), cache_get('latin', 'shared_name');
SELECT cache_set_bytes('zero', '\x00', cache => 'shared_name');
SELECT cache_get('zero', 'shared_name');
SELECT cache_set_bytes('k', '\xe9e8', cache => 't'), cache_get('k', 't'), cache_set('j', '{"é": "è"}', cache => 'j'), cache_get_json('j', 'j') ->> 'é' AS e, cache_get_bytes('j', 'j');
-- The server encoding also determines the length of a key and the order of the keys, up to the byte 0xFF.
SELECT cache_set(repeat('é', 2048), 'long', cache => 't'), cache_get(repeat('é', 2048), 't'), cache_delete(repeat('é', 2048), 't');
SELECT cache_set(repeat('é', 2049), 'v', cache => 't');
SELECT cache_set_many(ARRAY['ÿ', 'ÿÿ', 'ÿa', 'þ', 'aÿ', 'b'], array_fill('v'::text, ARRAY[6]), cache => 't');
SELECT array_agg(key) FROM cache_scan('ÿ', cache => 't');
SELECT array_agg(key) FROM cache_scan('aÿ', cache => 't');
SELECT array_agg(key) FROM cache_scan('þ', cache => 't');
SELECT cache_delete_prefix('aÿ', 't'), cache_delete_prefix('ÿ', 't');
SELECT array_agg(key) FROM cache_scan(cache => 't');
SELECT cache_create('été');
SELECT cache_set('k', 'v', cache => 'été'), cache_get('k', '"été"'), cache_incr('n', cache => 'shared_name'), cache_incr('n', cache => 'shared_name');

\c :home
SELECT cache_get('k'), cache_get('k', 'shared_name'), cache_delete('k'), cache_drop('shared_name');
DROP DATABASE regress_pgcache_latin1;
