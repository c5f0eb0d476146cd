\set n :n + 1
\set i hash(:n * 1000 + :client_id)
\set ttl random(60000, 60000)
SELECT cache_set('key:' || :i, repeat('x', 100), make_interval(secs => :ttl / 1000.0), 'bench');
