\set i random(1, 300)
\set ttl random(30000, 300000)
SELECT cache_get('key:' || :i, 'bench');
