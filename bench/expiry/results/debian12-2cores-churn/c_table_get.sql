\set i random(1, 1000)
\set ttl random(30000, 300000)
SELECT value FROM bench WHERE key = 'key:' || :i AND (expires_at IS NULL OR expires_at > clock_timestamp());
