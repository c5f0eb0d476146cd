\set i random(1, 1000)
\set j random(1, 20)
\set ttl random(30000, 300000)
INSERT INTO bench (key, value, expires_at) VALUES ('key:' || :i, (SELECT value FROM long_values WHERE n = :j), clock_timestamp() + make_interval(secs => :ttl / 1000.0)) ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
