-- cache_keys, cache_count, cache_lookup_many and cache_incr_existing on table caches.
SELECT cache_create('k'), cache_create('kj', value_type => 'jsonb'), cache_create('kb', value_type => 'bytea');
SELECT cache_count('k'), (SELECT count(*) FROM cache_keys(cache => 'k'));
SELECT cache_set_many(ARRAY['a', 'B', 'b', 'ab', 'a_', 'ä'], array_fill('1'::text, ARRAY[6]), cache => 'k'), cache_set('neg', NULL, '1 hour', 'k');
INSERT INTO k VALUES ('dead', '1', clock_timestamp() - interval '1 s'), ('never', '1', 'infinity');
SELECT cache_set_json('j', '[1]', cache => 'kj'), cache_set_bytes('bytes', '\xff', cache => 'kb');

-- Keys come in byte order, negative entries included and expired ones not, from caches of any type.
SELECT key FROM cache_keys(cache => 'k');
SELECT c, array_agg(key) FROM unnest('{kj,kb}'::regclass[]) AS c, cache_keys(cache => c) GROUP BY c ORDER BY c::text;
SELECT cache_count('k'), cache_count('kj'), cache_count('kb'), cache_count();
SELECT array_agg(key) FROM cache_keys('a', cache => 'k');
SELECT array_agg(key) FROM cache_keys('a', 'a', 1, 'k');
SELECT array_agg(key) FROM cache_keys(NULL, '', 3, 'k');
SELECT count(*) FROM cache_keys(max_rows => 0, cache => 'k');
SELECT count(*) FROM cache_keys(max_rows => 2147483647, cache => 'k');
-- cache_keys as a set-returning function: in the select list, and in FROM under any name.
SELECT cache_keys('a', NULL, 2, 'k');
SELECT f FROM cache_keys('a', NULL, 2, 'k') AS f;
SELECT * FROM ROWS FROM (cache_keys('a', NULL, 2, 'k'), generate_series(1, 3)) WITH ORDINALITY AS f (name, n);

-- Keys that a transaction has changed, before its rollback.
BEGIN;
SELECT cache_delete('a', 'k'), cache_set('new', '1', cache => 'k');
SELECT cache_count('k'), (SELECT array_agg(key) FROM cache_keys(cache => 'k'));
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT cache_count('k');
SELECT cache_delete('a', 'k'), cache_set('a', 'again', cache => 'k'), cache_set('a0', '1', cache => 'k'), cache_incr_existing('B', 4, 'k');
SELECT cache_count('k'), (SELECT array_agg(key) FROM cache_keys(cache => 'k'));
ROLLBACK;

-- lookup_many returns rows in the order of the request and distinguishes a miss from a negative entry.
SELECT key, found, value, expires_at IS NOT NULL AS expires FROM cache_lookup_many('{none,neg,a,dead,a}', 'k');
SELECT * FROM cache_lookup_many('{}', 'k');
SELECT * FROM cache_lookup_many(NULL, 'k');
SELECT key, value FROM cache_lookup_many('{j}', 'kj');

-- incr_existing changes only an existing entry and keeps its deadline.
SELECT cache_incr_existing('a', cache => 'k'), cache_incr_existing('a', 5, 'k'), cache_incr_existing('a', -8, 'k'), cache_get('a', 'k');
SELECT cache_incr_existing('none', cache => 'k') IS NULL AS absent, cache_exists('none', 'k'), cache_incr_existing('dead', cache => 'k') IS NULL AS expired;
SELECT cache_incr_existing('neg', 3, 'k'), cache_ttl('neg', 'k') > '59 minutes' AS deadline_stays;
SELECT cache_incr('c', 2, cache => c), cache_incr_existing('c', 40, c), cache_get('c', c) FROM unnest('{kj,kb}'::regclass[]) AS c;
SELECT cache_set('word', 'x', cache => 'k'), cache_set('most', '9223372036854775807', cache => 'k');
SELECT call, e.state, e.message FROM unnest(ARRAY[
    $$cache_incr_existing('word', 1, 'k')$$, $$cache_incr_existing('most', 1, 'k')$$, $$cache_incr_existing('a', NULL, 'k')$$, $$cache_incr_existing(NULL, 1, 'k')$$,
    $$cache_incr_existing('c', 9223372036854775807, 'kj')$$, $$cache_keys(max_rows => -1, cache => 'k')$$, $$cache_keys(max_rows => NULL, cache => 'k')$$,
    $$cache_keys(max_rows => -2147483648, cache => 'k')$$, $$cache_count(NULL)$$, $$cache_count('pg_class')$$, $$cache_keys(cache => 'pg_class')$$,
    $$cache_lookup_many(ARRAY['a', NULL], 'k')$$, $$cache_lookup_many(ARRAY[['a'], ['b']], 'k')$$, $$cache_lookup_many(ARRAY['a', ''], 'k')$$]) WITH ORDINALITY AS c (call, n),
    error_of('SELECT ' || call) AS e ORDER BY n;
SELECT cache_get('word', 'k'), cache_get('most', 'k'), cache_get('c', 'kj');

-- A user-defined trigger that skips the update: the value stays.
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE UPDATE ON k FOR EACH ROW EXECUTE FUNCTION keep();
SELECT cache_incr_existing('most', -7, 'k') IS NULL AS kept, cache_get('most', 'k');

DROP TABLE k, kj, kb;
DROP FUNCTION keep;
