-- cache_scan: live entries in byte order of the keys, page by page; a prefix matches bytes and is not a pattern.
\set VERBOSITY sqlstate
SELECT cache_create('s');
SELECT cache_set_many(ARRAY['a', 'B', 'b', 'ab', 'a%', 'a_', 'a' || chr(1), 'ä', 'äb', 'z', 'ÿ', 'ÿa', U&'\+01F40E', U&'\+10FFFF', U&'\+10FFFFa', U&'\FFFF', 'aÿ', 'b0'],
                      array_fill('v'::text, ARRAY[18]), cache => 's');
INSERT INTO s VALUES ('aa-dead', 'v', clock_timestamp() - interval '1 s');
SELECT cache_set('ab-soon', NULL, '1 hour', 's');

-- All entries, in byte order.
SELECT key::bytea, key = any (ARRAY['a', 'B', 'z']) AS known, value, expires_at IS NOT NULL AS expires FROM cache_scan(cache => 's');

-- By prefix. A prefix that ends with the highest character does not match the keys next to it.
SELECT p, (SELECT array_agg(key::bytea) FROM cache_scan(p, cache => 's'))
  FROM unnest(ARRAY['a', 'ab', 'a%', 'a_', 'B', 'ä', 'ÿ', U&'\+10FFFF', U&'\FFFF', 'none', 'zz']) AS p;
SELECT count(*) FROM cache_scan('', cache => 's');
SELECT count(*) FROM cache_scan(NULL, cache => 's');

-- Pages: the last key of one is `after` of the next.
SELECT array_agg(key::bytea) FROM cache_scan(max_rows => 3, cache => 's');
SELECT array_agg(key::bytea) FROM cache_scan(after => 'a%', max_rows => 3, cache => 's');
SELECT array_agg(key::bytea) FROM cache_scan('a', NULL, 2, 's');
SELECT array_agg(key::bytea) FROM cache_scan('a', 'a' || chr(1), 2, 's');
SELECT array_agg(key::bytea) FROM cache_scan('a', 'a_', 2, 's');
SELECT array_agg(key::bytea) FROM cache_scan('a', 'ab', 9, 's');
SELECT array_agg(key::bytea) FROM cache_scan('a', 'aÿ', 9, 's');
SELECT array_agg(key::bytea) FROM cache_scan('b', 'a', 9, 's');
SELECT array_agg(key::bytea) FROM cache_scan('b', '', 9, 's');
SELECT array_agg(key::bytea) FROM cache_scan('a', 'b', 9, 's');
-- The key `after` need not exist.
SELECT array_agg(key::bytea) FROM cache_scan('a', 'a^', 2, 's');
SELECT count(*) FROM cache_scan(max_rows => 0, cache => 's');
SELECT count(*) FROM cache_scan(max_rows => -1, cache => 's');

-- Reading page by page returns every live entry once.
WITH RECURSIVE page AS (
    SELECT 1 AS n, (SELECT array_agg(key) FROM cache_scan('', NULL, 4, 's')) AS keys
    UNION ALL
    SELECT n + 1, (SELECT array_agg(key) FROM cache_scan('', keys[cardinality(keys)], 4, 's')) FROM page WHERE cardinality(keys) = 4
)
SELECT count(*) AS keys, count(DISTINCT k COLLATE "C") AS distinct_keys, max(n) AS pages FROM page, unnest(keys) AS k;

-- Without max_rows a page has at most 100 entries.
SELECT cache_create('hundred');
SELECT cache_set_many(array_agg(to_char(i, 'FM000')), array_agg('v'::text), cache => 'hundred') FROM generate_series(1, 150) AS i;
SELECT count(*), min(key), max(key) FROM cache_scan(cache => 'hundred');
SELECT count(*), min(key), max(key) FROM cache_scan(after => '100', cache => 'hundred');
SELECT count(*), min(key), max(key) FROM cache_scan(max_rows => 2147483647, cache => 'hundred');
-- Expired entries do not count towards the page.
UPDATE hundred SET expires_at = clock_timestamp() - interval '1 s' WHERE key::int % 2 = 1;
SELECT array_agg(key) FROM cache_scan(max_rows => 5, cache => 'hundred');

-- delete_prefix matches the same prefixes.
SELECT p, cache_delete_prefix(p, 's') FROM unnest(ARRAY['none', U&'\+10FFFF', 'ÿ', 'ä', 'a_', 'a%', 'a']) AS p;
SELECT array_agg(key::bytea ORDER BY key) FROM s;

DROP TABLE s, hundred;
