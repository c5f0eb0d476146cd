\set m random(greatest(1, :n - 9999), greatest(1, :n))
\set i hash(:m * 1000 + :client_id)
\set ttl random(60000, 60000)
SELECT cache_get('key:' || :i, 'bench');
