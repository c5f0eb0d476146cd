\set m random(greatest(1, :n - 9999), greatest(1, :n))
\set i hash(:m * 1000 + :client_id)
\set ttl random(60000, 60000)
SELECT value FROM bench WHERE key = 'key:' || :i AND (expires_at IS NULL OR expires_at > clock_timestamp());
