\set i random(1, 1000000)
\set ttl random(30000, 300000)
SELECT cache_set('key:' || :i, repeat('x', 100), make_interval(secs => :ttl / 1000.0), 'bench');
