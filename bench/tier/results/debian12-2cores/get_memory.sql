\set n 100000000000 + random(1, 1000000)
SELECT cache_get('key:' || :n, 'memory');
