-- cache_rate_limit: a fixed window.
SELECT cache_create('c'), cache_create('cj', value_type => 'jsonb'), cache_create('cb', value_type => 'bytea');
SELECT c.cache, l.allowed, l.remaining, l.retry_after = '0' AS at_once
  FROM (VALUES ('c'), ('cj'), ('cb')) AS c (cache), generate_series(1, 2), cache_rate_limit('k', 2, '1 hour', c.cache::regclass) AS l;
SELECT allowed, remaining, retry_after BETWEEN '59 minutes' AND '1 hour' AS the_rest FROM cache_rate_limit('k', 2, '1 hour', 'c');
SELECT allowed, remaining FROM cache_rate_limit('k', 2, '1 hour', 'cj');
SELECT allowed, remaining FROM cache_rate_limit('k', 2, '1 hour', 'cb');
-- Each key has its own limit; a higher limit admits more calls, and the end of the window stays.
SELECT allowed, remaining FROM cache_rate_limit('other', 2, '1 hour', 'c');
SELECT allowed, remaining FROM cache_rate_limit('k', 5, '9 hours', 'c');
SELECT cache_get('k', 'c'), cache_ttl('k', 'c') <= '1 hour' AS window_stays;
-- A new window starts after the old one.
SELECT allowed FROM cache_rate_limit('short', 1, '100 ms', 'c');
SELECT pg_sleep(0.2);
SELECT allowed, remaining FROM cache_rate_limit('short', 1, '1 hour', 'c');
SELECT allowed, retry_after FROM cache_rate_limit('ever', 1, cache_forever(), 'c');
SELECT allowed, retry_after FROM cache_rate_limit('ever', 1, cache_forever(), 'c');
SELECT allowed, remaining FROM cache_rate_limit('in main', 1, '1 hour');
SELECT cache_delete('in main');
-- Invalid arguments, values and privileges.
\set VERBOSITY sqlstate
SELECT cache_rate_limit('k', 0, '1 hour', 'c');
SELECT cache_rate_limit('k', -1, '1 hour', 'c');
SELECT cache_rate_limit('k', 1, '0', 'c');
SELECT cache_rate_limit('k', 1, '-1 s', 'c');
SELECT cache_rate_limit('k', NULL, '1 hour', 'c');
SELECT cache_rate_limit('k', 1, NULL, 'c');
SELECT cache_rate_limit(NULL, 1, '1 hour', 'c');
SELECT cache_rate_limit('', 1, '1 hour', 'c');
SELECT cache_rate_limit('k', 1, '1 hour', NULL);
SELECT cache_set('word', 'x', cache => 'c');
SELECT cache_rate_limit('word', 1, '1 hour', 'c');
CREATE ROLE rate_limited;
GRANT SELECT, INSERT ON c TO rate_limited;
SET ROLE rate_limited;
SELECT cache_rate_limit('k', 1, '1 hour', 'c');
RESET ROLE;
GRANT UPDATE ON c TO rate_limited;
SET ROLE rate_limited;
SELECT allowed FROM cache_rate_limit('k', 1, '1 hour', 'c');
RESET ROLE;
DROP TABLE c, cj, cb;
DROP ROLE rate_limited;
