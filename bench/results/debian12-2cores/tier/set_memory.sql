\set n 1000000000000000 + random(1, 1000000)
SELECT cache_set(:n, :value, NULL, 'memory');
