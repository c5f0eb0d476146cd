-- Functions that read, store or delete several entries in one call.
\set VERBOSITY sqlstate
SELECT cache_create('m'), cache_create('mb', value_type => 'bytea'), cache_create('mj', value_type => 'jsonb');

-- set_many: if a key comes twice, its last value is stored.
SELECT cache_set_many(ARRAY['b', 'a', 'c'], ARRAY['2', '1', '3'], cache => 'm');
SELECT key, value FROM m ORDER BY key;
SELECT cache_set_many(ARRAY['a', 'd', 'a', 'a'], ARRAY['x', '4', 'y', 'z'], '1 hour', 'm') AS distinct_keys;
SELECT key, value, expires_at IS NOT NULL AS expires FROM m ORDER BY key;
SELECT cache_set_many('{}', '{}', cache => 'm'), cache_set_many(ARRAY['e'], ARRAY[''], cache => 'm'), cache_get('e', 'm') = '' AS empty;
SELECT cache_set_many_bytes(ARRAY['a', 'b', 'a'], ARRAY['\x00', '\xff', '\x01']::bytea[], cache => 'mb'), cache_get_bytes('a', 'mb'), cache_get_bytes('b', 'mb');
SELECT cache_set_many(ARRAY['a', 'b'], ARRAY['{"x":1}', '[]'], cache => 'mj'), cache_get_json('a', 'mj'), cache_get_json('b', 'mj');
SELECT cache_set_many(ARRAY['t'], ARRAY['text'], cache => 'mb'), cache_get('t', 'mb'), cache_set_many_bytes(ARRAY['t'], ARRAY['7']::bytea[], cache => 'mj'), cache_get('t', 'mj');

-- get_many: returns one row for each requested key, in the order of the request, with NULL for a miss.
SELECT * FROM cache_get_many(ARRAY['c', 'none', 'a', 'c', 'b'], 'm');
SELECT ordinality, key, value FROM cache_get_many(ARRAY['z', 'y', 'b', 'x'], 'm') WITH ORDINALITY;
SELECT * FROM cache_get_many('{}', 'm');
SELECT * FROM cache_get_many_bytes(ARRAY['b', 'none', 'a'], 'mb');
SELECT * FROM cache_get_many_bytes(ARRAY['c', 'none'], 'm');
SELECT * FROM cache_get_many(ARRAY['a'], 'mj');
SELECT cache_set('main', 'v'), (SELECT value FROM cache_get_many(ARRAY['main'])), (SELECT value FROM cache_get_many_bytes(ARRAY['main'])), cache_delete_many(ARRAY['main']);

-- delete_many: returns how many of the deleted entries were live.
UPDATE m SET expires_at = clock_timestamp() - interval '1 s' WHERE key = 'd';
SELECT cache_delete_many(ARRAY['a', 'none', 'a', 'd', 'b'], 'm'), cache_delete_many('{}', 'm');
SELECT key FROM m ORDER BY key;

-- Invalid arrays raise an error, and nothing of the call is written.
SELECT cache_set_many(ARRAY['n1', NULL], ARRAY['v', 'v'], cache => 'm');
SELECT cache_set_many(ARRAY['n1', 'n2'], ARRAY['v', NULL], cache => 'm');
SELECT cache_set_many(ARRAY['n1', 'n2'], ARRAY['v'], cache => 'm');
SELECT cache_set_many(ARRAY['n1'], ARRAY['v', 'v'], cache => 'm');
SELECT cache_set_many('{}', ARRAY['v'], cache => 'm');
SELECT cache_set_many(ARRAY['n1', ''], ARRAY['v', 'v'], cache => 'm');
SELECT cache_set_many(ARRAY[['n1', 'n2'], ['n3', 'n4']], ARRAY['v', 'v', 'v', 'v'], cache => 'm');
SELECT cache_set_many(ARRAY['n1', 'n2'], ARRAY[['v', 'v']], cache => 'm');
SELECT cache_set_many_bytes(ARRAY['n1', NULL], ARRAY['v', 'v']::bytea[], cache => 'm');
SELECT cache_set_many_bytes(ARRAY['n1', 'n2'], ARRAY['v', NULL]::bytea[], cache => 'm');
SELECT cache_set_many_bytes(ARRAY['n1', 'n2'], ARRAY['v']::bytea[], cache => 'm');
SELECT cache_delete_many(ARRAY['c', NULL], 'm');
SELECT cache_delete_many(ARRAY[['c'], ['d']], 'm');
SELECT * FROM cache_get_many(ARRAY['c', NULL], 'm');
SELECT * FROM cache_get_many(ARRAY[['c'], ['d']], 'm');
SELECT * FROM cache_get_many_bytes(ARRAY['c', NULL], 'm');
SELECT key FROM m ORDER BY key;
-- Array bounds that do not begin at 1 have no effect.
SELECT cache_set_many('[5:6]={p,q}', '[0:1]={1,2}', cache => 'm'), cache_get('p', 'm'), cache_get('q', 'm');
SELECT * FROM error_of($$SELECT cache_set_many('{a}', '{}')$$);
SELECT * FROM error_of($$SELECT cache_set_many('{a,NULL}', '{1,2}')$$);
SELECT * FROM error_of($$SELECT cache_set_many('{a,b}', '{1,NULL}')$$);

-- Large batches with long values.
SELECT cache_set_many(array_agg('k' || i), array_agg(repeat(i::text, 1000)), cache => 'm') FROM generate_series(1, 5000) AS i;
SELECT count(*) FILTER (WHERE value = repeat(i::text, 1000)) AS hits, count(*) FILTER (WHERE value IS NULL) AS misses
  FROM (SELECT array_agg('k' || i ORDER BY i) AS keys FROM generate_series(1, 5010) AS i) AS a,
       cache_get_many(a.keys, 'm') WITH ORDINALITY AS g (key, value, i) WHERE key = 'k' || i;
SELECT cache_delete_many(array_agg('k' || i), 'm') FROM generate_series(1, 5010) AS i;

DROP TABLE m, mb, mj;
