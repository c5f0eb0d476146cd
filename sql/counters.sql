-- cache_incr: an atomic counter in a cache of any type.
SELECT cache_create('c'), cache_create('cj', value_type => 'jsonb'), cache_create('cb', value_type => 'bytea'), cache_create('ch', ttl => '1 hour');

-- Creates an entry with the value of delta, or adds delta to the entry.
SELECT cache_incr('k', cache => 'c'), cache_incr('k', cache => 'c'), cache_incr('k', 40, cache => 'c'), cache_incr('k', -50, cache => 'c'),
       cache_incr('k', 0, cache => 'c'), cache_get('k', 'c');
SELECT cache_incr('k', cache => 'cj'), cache_incr('k', 41, cache => 'cj'), cache_get_json('k', 'cj'), jsonb_typeof(cache_get_json('k', 'cj'));
SELECT cache_incr('k', cache => 'cb'), cache_incr('k', 41, cache => 'cb'), cache_get_bytes('k', 'cb'), cache_get('k', 'cb');
SELECT cache_incr('k') + cache_incr('k'), cache_delete('k');
-- Increments a value that cache_set has stored.
SELECT cache_set('s', '-5', cache => 'c'), cache_incr('s', 6, cache => 'c'), cache_set('s', '007', cache => 'c'), cache_incr('s', cache => 'c');
SELECT cache_set_json('s', '1e2', cache => 'cj'), cache_incr('s', cache => 'cj'), cache_set_bytes('s', '\x3939', cache => 'cb'), cache_incr('s', cache => 'cb');

-- The ttl applies only if the call creates the entry; an existing deadline stays.
SELECT cache_incr('t', 1, '2 hours', 'c'), cache_incr('t', 1, '9 hours', 'c'), cache_incr('t', 1, NULL, 'c'), cache_incr('t', 1, cache_forever(), 'c'),
       cache_ttl('t', 'c') BETWEEN '119 min' AND '2 hours' AS two_hours;
SELECT cache_incr('u', cache => 'c'), cache_incr('u', 1, '1 hour', 'c'), cache_ttl('u', 'c') AS none;
SELECT cache_incr('t', cache => 'ch'), cache_ttl('t', 'ch') BETWEEN '59 min' AND '1 hour' AS hour, cache_incr('u', 1, cache_forever(), 'ch'), cache_ttl('u', 'ch') AS none;

-- A value that is not an integer raises 22P02 and stays unchanged.
SELECT v, e.state, e.message, cache_get('bad', 'c') = v AS unchanged
  FROM unnest(ARRAY['', 'x', '1.5', '1e3', ' 1', '1 ', '+1', '-', '--1', '0x10', '1_000', '١', 'NaN']) WITH ORDINALITY AS b (v, n),
       LATERAL cache_set('bad', v, cache => 'c') AS s, LATERAL error_of($$SELECT cache_incr('bad', cache => 'c')$$ || left(s::text, 0)) AS e
 ORDER BY n;
SELECT v, e.state FROM unnest(ARRAY['"5"', '5.5', 'null', 'true', '[1]', '{}']::jsonb[]) AS v,
       LATERAL cache_set_json('bad', v, cache => 'cj') AS s, LATERAL error_of($$SELECT cache_incr('bad', cache => 'cj')$$ || left(s::text, 0)) AS e;
SELECT v, e.state FROM unnest(ARRAY['\x', '\x61']::bytea[]) AS v,
       LATERAL cache_set_bytes('bad', v, cache => 'cb') AS s, LATERAL error_of($$SELECT cache_incr('bad', cache => 'cb')$$ || left(s::text, 0)) AS e;
SELECT * FROM error_of($$SELECT cache_incr('bad', cache => 'cj')$$);

-- A sum outside bigint raises 22003, and the value stays unchanged.
SELECT cache_set('max', '9223372036854775806', cache => 'c'), cache_incr('max', cache => 'c');
SELECT * FROM error_of($$SELECT cache_incr('max', cache => 'c')$$);
SELECT cache_get('max', 'c'), cache_incr('max', -1, cache => 'c');
SELECT cache_incr('min', -9223372036854775808, cache => 'c');
SELECT state FROM error_of($$SELECT cache_incr('min', -1, cache => 'c')$$);
SELECT cache_get('min', 'c'), cache_incr('min', 9223372036854775807, cache => 'c');
SELECT cache_set('over', '9223372036854775808', cache => 'c');
SELECT state FROM error_of($$SELECT cache_incr('over', -1, cache => 'c')$$);
SELECT cache_set('over', repeat('9', 100), cache => 'c');
SELECT state FROM error_of($$SELECT cache_incr('over', -1, cache => 'c')$$);
SELECT cache_incr('max', 1, cache => 'cj') IS NOT NULL AS j, cache_incr('max', 9223372036854775806, cache => 'cj');
SELECT state FROM error_of($$SELECT cache_incr('max', cache => 'cj')$$);

-- All increments of one statement count.
SELECT count(cache_incr('many', i, cache => 'c')), max(cache_get('many', 'c')::int) FROM generate_series(1, 1000) AS i;

DROP TABLE c, cj, cb, ch;
