-- The effect of each function on an existing and on an absent entry, with text values.
SELECT cache_create('entries');
CREATE VIEW entries_now AS SELECT key, value, expires_at IS NOT NULL AS expires FROM entries ORDER BY key;

-- set inserts or overwrites, deadline included.
SELECT cache_set('a', '1', '1 hour', 'entries'), cache_set('b', '2', cache => 'entries');
TABLE entries_now;
SELECT cache_set('a', 'one', cache => 'entries'), cache_set('b', 'two', '1 hour', 'entries');
TABLE entries_now;
SELECT cache_set('', 'empty value', cache => 'entries');
SELECT cache_set('c', '', cache => 'entries');

-- get and other reads.
SELECT cache_get('a', 'entries'), cache_get('A', 'entries'), cache_get('a ', 'entries'), cache_get('c', 'entries') = '' AS empty;
SELECT cache_exists('a', 'entries'), cache_exists('none', 'entries');
SELECT found, value, expires_at IS NOT NULL AS expires FROM cache_lookup('b', 'entries');
SELECT found, value, expires_at FROM cache_lookup('a', 'entries');
SELECT found, value, expires_at FROM cache_lookup('none', 'entries');
SELECT cache_ttl('a', 'entries'), cache_ttl('none', 'entries'),
       cache_ttl('b', 'entries') BETWEEN '59 minutes' AND '1 hour' AS hour;
-- A call in FROM for each row of keys.
SELECT k, l.found, l.value FROM (VALUES ('a'), ('none'), ('b')) AS v (k), cache_lookup(v.k, 'entries') AS l;

-- add stores only if the entry is absent, replace only if it exists. Both set a new deadline.
SELECT cache_add('a', 'x', cache => 'entries'), cache_add('d', '4', '1 hour', 'entries');
SELECT cache_replace('none', 'x', cache => 'entries'), cache_replace('b', '2', cache => 'entries');
TABLE entries_now;

-- cas stores only if the live value is the expected one; NULL expects an absent entry.
SELECT cache_cas('a', 'two', 'x', cache => 'entries'), cache_cas('a', 'one', '1', '1 hour', 'entries'),
       cache_cas('none', 'one', 'x', cache => 'entries'), cache_cas('a', NULL, 'x', cache => 'entries');
SELECT cache_cas('e', NULL, '5', cache => 'entries'), cache_cas('e', NULL, '6', cache => 'entries');
SELECT cache_cas('e', '5', NULL, cache => 'entries');
TABLE entries_now;
SELECT cache_delete('e', 'entries');

-- touch, get_touch, persist.
SELECT cache_touch('none', '1 hour', 'entries'), cache_touch('b', '1 hour', 'entries'),
       cache_ttl('b', 'entries') BETWEEN '59 minutes' AND '1 hour' AS hour;
SELECT cache_get_touch('none', '1 day', 'entries'), cache_get_touch('b', '2 hours', 'entries'),
       cache_ttl('b', 'entries') BETWEEN '119 minutes' AND '2 hours' AS two_hours;
SELECT cache_persist('none', 'entries'), cache_persist('b', 'entries'), cache_persist('b', 'entries'), cache_ttl('b', 'entries');

-- delete, delete_if, take.
SELECT cache_delete('none', 'entries'), cache_delete('a', 'entries'), cache_delete('a', 'entries');
SELECT cache_delete_if('b', 'x', 'entries'), cache_delete_if('b', NULL, 'entries'), cache_exists('b', 'entries'),
       cache_delete_if('b', '2', 'entries'), cache_exists('b', 'entries'), cache_delete_if('b', '2', 'entries');
SELECT cache_take('d', 'entries'), cache_exists('d', 'entries'), cache_take('d', 'entries');
TABLE entries_now;

-- delete_prefix: the prefix is plain text, not a pattern.
SELECT cache_set(k, 'v', cache => 'entries')
  FROM unnest(ARRAY['user:1', 'user:2', 'user:22', 'user%', 'user', 'usher', 'us_r', 'User:1', 'zebra']) AS k;
SELECT cache_delete_prefix('user:2', 'entries'), cache_delete_prefix('user%', 'entries'), cache_delete_prefix('us_', 'entries'),
       cache_delete_prefix('nobody', 'entries');
SELECT key FROM entries ORDER BY key;
SELECT cache_delete_prefix('', 'entries'), (SELECT count(*) FROM entries);

-- clear removes all entries of one cache.
SELECT cache_create('entries_too');
SELECT cache_set('k', 'one', cache => 'entries'), cache_set('k', 'two', cache => 'entries_too'), cache_set('k', 'main');
SELECT cache_get('k', 'entries'), cache_get('k', 'entries_too'), cache_get('k');
SELECT cache_clear('entries');
SELECT cache_get('k', 'entries'), cache_get('k', 'entries_too'), cache_get('k');
SELECT cache_delete('k'), cache_exists('k'), cache_get('k', 'entries_too');

-- Later functions of a statement see the writes of earlier ones.
SELECT cache_set('s', '1', cache => 'entries'), cache_get('s', 'entries'), cache_incr('s', cache => 'entries'), cache_get('s', 'entries'),
       cache_delete('s', 'entries'), cache_get('s', 'entries');
SELECT cache_set('n' || i, i::text, cache => 'entries') FROM generate_series(1, 3) AS i;
SELECT cache_set(key || 'x', value, cache => 'entries') FROM entries ORDER BY key;
SELECT key, value FROM entries ORDER BY key;

-- A value of a megabyte, and values with special characters.
SELECT cache_set('big', repeat('0123456789', 100000), cache => 'entries'),
       cache_set('quote', E'a\'b"c\\d\ne\tf', cache => 'entries'), cache_set('wide', 'žluťoučký 🐎', cache => 'entries');
SELECT cache_get('big', 'entries') = repeat('0123456789', 100000) AS big, cache_get('quote', 'entries') = E'a\'b"c\\d\ne\tf' AS quote,
       cache_get('wide', 'entries') AS wide;

DROP VIEW entries_now;
DROP TABLE entries, entries_too;
