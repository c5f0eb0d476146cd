\set n :n + 1
\set i hash(:n * 1000 + :client_id)
\set ttl random(60000, 60000)
INSERT INTO bench (key, value, expires_at) VALUES ('key:' || :i, repeat('x', 100), clock_timestamp() + make_interval(secs => :ttl / 1000.0)) ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
