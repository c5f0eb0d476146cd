-- Keys that are NULL, empty or too long, and the content of the error messages.
SELECT cache_create('a');
SELECT cache_set('k', 'v', cache => 'a');

-- Reads with a NULL key return NULL.
SELECT cache_get(NULL, 'a') IS NULL AS get, cache_get_json(NULL, 'a') IS NULL AS get_json, cache_get_bytes(NULL, 'a') IS NULL AS get_bytes,
       cache_exists(NULL, 'a') IS NULL AS exists, cache_ttl(NULL, 'a') IS NULL AS ttl, cache_get_touch(NULL, '1 hour', 'a') IS NULL AS get_touch,
       cache_get_touch_bytes(NULL, '1 hour', 'a') IS NULL AS get_touch_bytes;
SELECT count(*), bool_or(found) IS NOT TRUE AS not_found, count(value) + count(expires_at) AS columns FROM cache_lookup(NULL, 'a');
SELECT count(*), bool_or(found) IS NOT TRUE AS not_found, count(value) + count(expires_at) AS columns FROM cache_lookup_bytes(NULL, 'a');
SELECT count(*) FROM cache_get_many(NULL, 'a');
SELECT count(*) FROM cache_get_many_bytes(NULL, 'a');
SELECT count(*) FROM cache_lookup_many(NULL, 'a');
SELECT count(*) FROM cache_lookup_many_bytes(NULL, 'a');

-- Writes with a NULL key raise 22004.
CREATE TABLE calls (n serial, call text);
INSERT INTO calls (call) VALUES
    ($$cache_set(%1$s, 'v', cache => 'a')$$), ($$cache_set_json(%1$s, '1', cache => 'a')$$), ($$cache_set_bytes(%1$s, '1', cache => 'a')$$),
    ($$cache_add(%1$s, 'v', cache => 'a')$$), ($$cache_replace(%1$s, 'v', cache => 'a')$$), ($$cache_cas(%1$s, 'v', 'v', cache => 'a')$$),
    ($$cache_incr(%1$s, cache => 'a')$$), ($$cache_touch(%1$s, '1 hour', cache => 'a')$$), ($$cache_persist(%1$s, 'a')$$),
    ($$cache_delete(%1$s, 'a')$$), ($$cache_delete_if(%1$s, 'v', 'a')$$), ($$cache_take(%1$s, 'a')$$),
    ($$cache_set_many(ARRAY['ok', %1$s], '{v,v}', cache => 'a')$$), ($$cache_set_many_bytes(ARRAY['ok', %1$s], '{v,v}', cache => 'a')$$),
    ($$cache_delete_many(ARRAY['ok', %1$s], 'a')$$),
    ($$cache_add_bytes(%1$s, 'v', cache => 'a')$$), ($$cache_replace_bytes(%1$s, 'v', cache => 'a')$$), ($$cache_cas_bytes(%1$s, 'v', 'v', cache => 'a')$$),
    ($$cache_incr_existing(%1$s, 1, 'a')$$), ($$cache_delete_if_bytes(%1$s, 'v', 'a')$$), ($$cache_take_bytes(%1$s, 'a')$$),
    ($$cache_fetch_bytes(%1$s, 'SELECT 1', cache => 'a')$$);
SELECT call, e.state, e.message FROM calls, error_of('SELECT ' || format(call, 'NULL')) AS e ORDER BY n;

-- No function accepts an empty key or a key of 2,049 bytes.
INSERT INTO calls (call) VALUES
    ($$cache_get(%1$s, 'a')$$), ($$cache_get_json(%1$s, 'a')$$), ($$cache_get_bytes(%1$s, 'a')$$), ($$cache_get_touch(%1$s, '1 hour', 'a')$$),
    ($$cache_exists(%1$s, 'a')$$), ($$cache_ttl(%1$s, 'a')$$), ($$cache_lookup(%1$s, 'a')$$),
    ($$cache_get_many(ARRAY['ok', %1$s], 'a')$$), ($$cache_get_many_bytes(ARRAY['ok', %1$s], 'a')$$),
    ($$cache_get_touch_bytes(%1$s, '1 hour', 'a')$$), ($$cache_lookup_bytes(%1$s, 'a')$$),
    ($$cache_lookup_many(ARRAY['ok', %1$s], 'a')$$), ($$cache_lookup_many_bytes(ARRAY['ok', %1$s], 'a')$$);
SELECT e.state, e.message, e.detail, e.hint, count(*) FROM calls, error_of('SELECT ' || format(call, $$''$$)) AS e GROUP BY 1, 2, 3, 4;
SELECT e.state, e.message, e.detail, e.hint, count(*) FROM calls, error_of('SELECT ' || format(call, $$repeat('k', 2049)$$)) AS e GROUP BY 1, 2, 3, 4;
SELECT state FROM error_of($$SELECT cache_set(repeat('ä', 1024) || 'k', 'v', cache => 'a')$$);
SELECT * FROM a;

-- A key of 2,048 bytes is accepted, in one-byte and in two-byte characters.
SELECT cache_set(repeat('k', 2048), 'one', cache => 'a'), cache_set(repeat('ä', 1024), 'two', cache => 'a');
SELECT cache_get(repeat('k', 2048), 'a'), cache_get(repeat('ä', 1024), 'a'), cache_get(repeat('k', 2047), 'a');
SELECT cache_delete_prefix(repeat('k', 2048), 'a'), cache_delete(repeat('ä', 1024), 'a');

-- NULL for arguments other than the key and the value.
SELECT e.state, e.message FROM unnest(ARRAY[
    $$SELECT cache_get('k', NULL)$$, $$SELECT cache_set('k', 'v', cache => NULL)$$, $$SELECT cache_incr('k', NULL, cache => 'a')$$,
    $$SELECT cache_delete_prefix(NULL, 'a')$$, $$SELECT cache_set_many(NULL, '{v}', cache => 'a')$$, $$SELECT cache_set_many('{k}', NULL, cache => 'a')$$,
    $$SELECT cache_delete_many(NULL, 'a')$$, $$SELECT cache_clear(NULL)$$, $$SELECT cache_drop(NULL)$$, $$SELECT cache_alter(NULL)$$,
    $$SELECT * FROM cache_scan(max_rows => NULL, cache => 'a')$$, $$SELECT * FROM cache_scan_bytes(max_rows => NULL, cache => 'a')$$,
    $$SELECT * FROM cache_keys(max_rows => NULL, cache => 'a')$$, $$SELECT cache_incr_existing('k', NULL, cache => 'a')$$, $$SELECT cache_count(NULL)$$]) WITH ORDINALITY AS c (call, n), error_of(c.call) AS e ORDER BY n;

-- Every function refuses a relation that is not a cache, or that does not exist.
CREATE TABLE other (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
CREATE VIEW over_a AS SELECT * FROM a;
SELECT e.state, e.message, e.hint, count(*) FROM calls,
       error_of('SELECT ' || replace(format(call, $$'k'$$), $$'a'$$, $$'other'$$)) AS e GROUP BY 1, 2, 3;
SELECT e.state, e.message, count(*) FROM calls,
       error_of('SELECT ' || replace(format(call, $$'k'$$), $$'a'$$, $$'over_a'$$)) AS e GROUP BY 1, 2;
SELECT r, e.state FROM unnest(ARRAY['pg_class', 'pg_catalog.pg_stat_activity', 'other_pkey', 'calls_n_seq', 'a_pkey', 'no_such', '0', '4294967295']) AS r,
       error_of(format('SELECT cache_get(''k'', %L)', r)) AS e;
SELECT call, e.state FROM unnest(ARRAY['cache_clear', 'cache_drop', 'cache_alter', 'cache_expire']) AS call, error_of(format('SELECT %s(''other'')', call)) AS e;
SELECT e.state FROM error_of($$SELECT * FROM cache_scan(cache => 'other')$$) AS e;
SELECT e.state FROM error_of($$SELECT * FROM cache_keys(cache => 'other')$$) AS e;
SELECT e.state FROM error_of($$SELECT cache_count('other')$$) AS e;
-- No message contains a key or a value.
SELECT count(*) FROM calls, error_of('SELECT ' || format(call, $$repeat('secret', 400)$$)) AS e WHERE e::text LIKE '%secret%';

DROP VIEW over_a;
DROP TABLE a, other, calls;
