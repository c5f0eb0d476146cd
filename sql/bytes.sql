-- The bytea functions behave like the text functions, with bytes as values.
SELECT cache_create('b', value_type => 'bytea', grace => '1 hour'), cache_create('bt'), cache_create('bj', value_type => 'jsonb');

-- Bytes that are not valid text are stored and returned unchanged.
SELECT cache_add_bytes('a', '\x00ff', cache => 'b') AS add, cache_add_bytes('a', '\x01', cache => 'b') AS again, cache_get_bytes('a', 'b');
SELECT cache_replace_bytes('none', '\x01', cache => 'b') AS absent, cache_replace_bytes('a', '\xff00', cache => 'b') AS replace, cache_get_bytes('a', 'b');
SELECT cache_cas_bytes('a', '\x00', '\x01', cache => 'b') AS other, cache_cas_bytes('a', '\xff00', '\x80', '1 hour', 'b') AS same,
       cache_cas_bytes('a', NULL, '\x01', cache => 'b') AS live, cache_cas_bytes('new', NULL, '\x81', cache => 'b') AS absent;
SELECT cache_get_touch_bytes('a', '2 hours', 'b'), cache_ttl('a', 'b') > '119 minutes' AS touched, cache_get_touch_bytes('none', '1 hour', 'b') IS NULL AS miss;
SELECT found, value, expires_at IS NOT NULL AS expires FROM unnest('{a,new,none}'::text[]) AS k, cache_lookup_bytes(k, 'b');
SELECT cache_set_bytes('neg', NULL, cache => 'b');
SELECT key, found, value, expires_at IS NOT NULL AS expires FROM cache_lookup_many_bytes('{none,neg,a,neg}', 'b');
SELECT key, value, expires_at IS NOT NULL AS expires FROM cache_scan_bytes(cache => 'b');
SELECT key, value FROM cache_scan_bytes('n', 'neg', 5, 'b');
SELECT cache_delete_if_bytes('a', '\x8000', 'b') AS other, cache_delete_if_bytes('a', '\x80', 'b') AS same, cache_delete_if_bytes('a', '\x80', 'b') AS gone,
       cache_delete_if_bytes('neg', NULL, 'b') AS negative, cache_delete_if_bytes('new', NULL, 'b') AS not_negative;
SELECT cache_take_bytes('new', 'b'), cache_take_bytes('new', 'b') IS NULL AS gone;
SELECT count(*) FROM b;

-- The loader's bytea is stored as it is; any other type is stored as its text.
SELECT cache_fetch_bytes('f', $$SELECT '\xfffe'::bytea$$, cache => 'b'), cache_fetch_bytes('f', 'SELECT 1/0', cache => 'b'), cache_fetch_bytes('t', 'SELECT 7', cache => 'b'),
       cache_fetch_bytes('none', 'SELECT NULL::bytea WHERE false', cache => 'b') IS NULL AS none, cache_exists('none', 'b');
UPDATE b SET expires_at = clock_timestamp() - interval '1 s' WHERE key = 'f';
SELECT cache_get_bytes('f', 'b') IS NULL AS expired, cache_fetch_bytes('f', $$SELECT '\x0102'::bytea$$, cache => 'b');

-- On a text or jsonb cache, the bytea functions accept and return the bytes of the text.
SELECT c, cache_add_bytes('k', '7', cache => c), cache_cas_bytes('k', '7', '8', cache => c), cache_get_touch_bytes('k', cache => c), cache_take_bytes('k', c)
  FROM unnest('{bt,bj}'::regclass[]) AS c;
SELECT cache_set('k', 'ä', cache => 'bt'), cache_set_json('k', '{"a":1}', cache => 'bj');
SELECT c, value = convert_to(cache_get('k', c), 'UTF8') AS same FROM unnest('{bt,bj}'::regclass[]) AS c, cache_lookup_bytes('k', c);
SELECT c, cache_delete_if_bytes('k', convert_to(cache_get('k', c), getdatabaseencoding()), c) FROM unnest('{bt,bj}'::regclass[]) AS c;
\set VERBOSITY sqlstate
SELECT cache_add_bytes('k', '\xff', cache => 'bt');
SELECT cache_replace_bytes('k', '\xff', cache => 'bj');
SELECT cache_cas_bytes('k', '\x7b', NULL, cache => 'bj');
SELECT cache_delete_if_bytes('k', '\xff', 'bt');
SELECT cache_fetch_bytes('k', $$SELECT '\xff'::bytea$$, cache => 'bt');
\set VERBOSITY default
SELECT count(*) FROM bt;

-- A literal without a cast is text. A bytea cache stores it as it stands, and warns once a statement if it looks like
-- bytea in hex.
SELECT cache_set('k', '\x00ff', cache => 'b'), cache_set('k2', '\x00fe', cache => 'b');
SELECT cache_get('k', 'b'), cache_get_bytes('k', 'b');
SELECT count(cache_set_many(ARRAY['k', 'k' || i], ARRAY['\x', '\xAb'], cache => 'b')) FROM generate_series(1, 3) AS i;
SELECT cache_delete_if('k', '\x', 'b');
SELECT cache_cas('k', '\x00ff', 'v', cache => 'b');
SELECT cache_fetch('k', 'SELECT ''\x00ff''', cache => 'b');
-- No warning for text that is not bytea in hex, for bytes, or if the cache stores text.
SELECT cache_set('k', v, cache => 'b') FROM unnest(ARRAY['\x0', '\xfg', '\y00', 'x00', '', '\X00', E'\\x00\n']) AS v;
SELECT cache_set_bytes('k', '\x00ff', cache => 'b'), cache_set('k', '\x00ff', cache => 'bt'), cache_get_bytes('k', 'bt');

DROP TABLE b, bt, bj;
