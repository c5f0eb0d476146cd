-- What `make demo` shows: a set, a get, an expiry and a join. Run by psql, statements echoed.
\set ECHO queries
\pset footer off
\pset null '(null)'

CREATE EXTENSION pgcache;

\echo
\echo '--- A set and a get, in the cache that is always there (pgcache.main):'
\echo
SELECT cache_set('greeting', 'hello, world');
SELECT cache_get('greeting');

\echo '--- An expiry: this entry lives for half a second.'
\echo
SELECT cache_set('code', '4711', ttl => '500 ms');
SELECT cache_get('code'), cache_ttl('code') AS time_left;
SELECT pg_sleep(0.6);
SELECT cache_get('code');

\echo '--- A cache of its own is a table of its own, so SQL can join it:'
\echo
SELECT cache_create('prices', ttl => '5 minutes');
SELECT cache_set_many(ARRAY['tea', 'coffee'], ARRAY['2.50', '3.20'], cache => 'prices');

CREATE TABLE orders (id int, product text, cups int);
INSERT INTO orders VALUES (1, 'tea', 2), (2, 'coffee', 3), (3, 'water', 1);

SELECT o.id, o.product, o.cups, o.cups * p.value::numeric AS total
  FROM orders o
  LEFT JOIN prices p ON p.key = o.product
        AND (p.expires_at IS NULL OR p.expires_at > clock_timestamp())
 ORDER BY o.id;
