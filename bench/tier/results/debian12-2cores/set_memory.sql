\set n 100000000000 + random(1, 1000000)
SELECT cache_set('key:' || :n, :value, NULL, 'memory');
