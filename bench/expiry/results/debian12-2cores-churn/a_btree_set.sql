\set i random(1, 1000000)
\set ttl random(30000, 300000)
INSERT INTO bench (key, value, expires_at) VALUES ('key:' || :i, repeat('x', 100), clock_timestamp() + make_interval(secs => :ttl / 1000.0)) ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
