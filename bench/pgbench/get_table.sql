-- How fast does cache_get answer from the table of a cache, without the hot tier? 80 of 100 keys exist.
-- Before its first read a session turns the hot tier off.
\if :client_id >= 0
SET pgcache.hot_tier = off;
\set client_id -1
\endif
\set n 100000000000 + random(0, int(1250000 * :scale) - 1)
SELECT cache_get('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'bench.unlogged');
