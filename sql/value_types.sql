-- Three types of values, and every form of function on every type of cache.
\set VERBOSITY sqlstate
SELECT cache_create('t'), cache_create('j', value_type => 'jsonb'), cache_create('b', value_type => 'bytea');

-- Each type by its own functions.
SELECT cache_set('k', '{"a": 1}', cache => 't'), cache_set_json('k', '{"a": 1}', cache => 'j'), cache_set_bytes('k', '\x00ff', cache => 'b');
SELECT cache_get('k', 't'), cache_get_json('k', 'j'), cache_get_json('k', 'j') -> 'a' AS a, cache_get_bytes('k', 'b');

-- jsonb: text functions parse and print.
SELECT cache_get('k', 'j'), cache_get_bytes('k', 'j'), convert_from(cache_get_bytes('k', 'j'), 'UTF8');
SELECT cache_set('k', '{"b":   [1,2],"b":3}', cache => 'j'), cache_get_json('k', 'j'), cache_get('k', 'j');
SELECT cache_set_bytes('k', '[true]', cache => 'j'), cache_get_json('k', 'j');
SELECT cache_set('k', 'no json', cache => 'j');
SELECT cache_set('k', '', cache => 'j');
SELECT cache_set_bytes('k', '\xff', cache => 'j');
SELECT cache_set_bytes('k', 'no json', cache => 'j');
SELECT cache_add('new', 'no json', cache => 'j');
SELECT cache_replace('k', '{', cache => 'j');
SELECT cache_cas('k', '{', '1', cache => 'j');
SELECT cache_cas('k', '1', '{', cache => 'j');
SELECT cache_delete_if('k', '{', cache => 'j');
SELECT cache_set_many(ARRAY['k', 'new'], ARRAY['1', 'no json'], cache => 'j');
SELECT cache_get('k', 'j') AS unchanged, cache_exists('new', 'j');
-- jsonb equality: white space, the order of names, and duplicate names make no difference.
SELECT cache_set_json('k', '{"x": 1, "y": 2}', cache => 'j'), cache_cas('k', '{"y":2,"x":1.0}', '[1]', cache => 'j'),
       cache_delete_if('k', ' [ 1 ] ', 'j'), cache_exists('k', 'j');
-- JSON's null is a value; SQL's NULL is a negative entry.
SELECT cache_set_json('k', 'null', cache => 'j'), cache_get_json('k', 'j'), cache_get('k', 'j'), cache_cas('k', NULL, '1', cache => 'j');
SELECT cache_set_json('k', NULL, cache => 'j'), cache_get_json('k', 'j'), cache_exists('k', 'j'), cache_cas('k', NULL, '1', cache => 'j');
SELECT cache_get('k', 'j'), cache_get_touch('k', '1 hour', 'j'), (SELECT value FROM cache_lookup('k', 'j')),
       (SELECT value FROM cache_scan(cache => 'j')), (SELECT value FROM cache_get_many('{k}', 'j')),
       (SELECT value FROM cache_get_many_bytes('{k}', 'j')), cache_take('k', 'j');

-- bytea: text functions accept and return the text's bytes in the server encoding.
SELECT cache_set('k', 'héllo', cache => 'b'), cache_get_bytes('k', 'b'), cache_get('k', 'b');
SELECT cache_cas('k', 'héllo', 'wörld', cache => 'b'), cache_delete_if('k', 'héllo', 'b'), cache_delete_if('k', 'wörld', 'b');
SELECT cache_set('k', '\x41', cache => 'b'), cache_get_bytes('k', 'b'), cache_get('k', 'b');
SELECT cache_set('k', '{"a": 1}', cache => 'b'), cache_get_json('k', 'b');
SELECT cache_set_json('k', '{"a":2}', cache => 'b'), cache_get('k', 'b');
SELECT cache_set_bytes('k', '\xc3', cache => 'b'), cache_set_bytes('zero', '\x610062', cache => 'b'), cache_set_bytes('good', 'a', cache => 'b');
SELECT cache_get('k', 'b');
SELECT cache_get('zero', 'b');
SELECT cache_get_json('k', 'b');
SELECT cache_get_json('good', 'b');
SELECT cache_get_touch('k', '1 hour', 'b');
SELECT cache_ttl('k', 'b') AS touched;
SELECT value FROM cache_lookup('k', 'b');
SELECT * FROM cache_scan(cache => 'b');
SELECT * FROM cache_get_many(ARRAY['good', 'k'], 'b');
SELECT * FROM cache_get_many(ARRAY['good'], 'b');
SELECT * FROM cache_get_many_bytes(ARRAY['k', 'none', 'good'], 'b');
SELECT cache_take('k', 'b');
SELECT cache_exists('k', 'b') AS still_there, cache_delete('k', 'b');
SELECT cache_set_many_bytes(ARRAY['x', 'y'], ARRAY['\x01', '\xff']::bytea[], cache => 'b'), cache_get_bytes('y', 'b');
SELECT cache_set_bytes('x', '', cache => 'b'), cache_get_bytes('x', 'b') = '' AS empty, cache_get('x', 'b') = '' AS empty_text;

-- A text cache with the functions of the other types.
SELECT cache_set_json('k', '{"a":1}', cache => 't'), cache_get('k', 't'), cache_get_json('k', 't'), cache_get_bytes('k', 't');
SELECT cache_set_bytes('k', 'plain', cache => 't'), cache_get('k', 't');
SELECT cache_set_bytes('k', '\xff', cache => 't');
SELECT cache_set_bytes('k', '\x6100', cache => 't');
SELECT cache_set_many_bytes(ARRAY['k', 'k2'], ARRAY['\x61', '\xc328']::bytea[], cache => 't');
SELECT cache_get_json('k', 't');
SELECT cache_get('k', 't') AS unchanged, cache_exists('k2', 't');
SELECT cache_set('k', '\x41', cache => 't'), cache_get_bytes('k', 't');

-- Neither a failed read nor a successful one keeps a lock.
BEGIN;
SELECT state FROM error_of($$SELECT cache_get_json('k', 't')$$);
SELECT cache_get('k', 't');
SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND pid = pg_backend_pid();
ROLLBACK;

DROP TABLE t, j, b;
