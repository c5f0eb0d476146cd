\set i random(1, 300)
\set j random(1, 20)
\set ttl random(30000, 300000)
SELECT cache_set('key:' || :i, (SELECT value FROM long_values WHERE n = :j), make_interval(secs => :ttl / 1000.0), 'bench');
