-- How fast does cache_get answer from a logged cache, from its copies in the hot tier? 80 of 100 keys exist.
\set n 100000000000 + random(0, int(1250000 * :scale) - 1)
SELECT cache_get('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'bench.logged');
