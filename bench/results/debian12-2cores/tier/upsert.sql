\set n 1000000000000000 + random(1, 1000000)
INSERT INTO plain (key, value, expires_at) VALUES (:n, :value, NULL) ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
