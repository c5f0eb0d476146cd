-- A plain logged table: 80 of 100 transactions are those of select_by_key_logged.sql, 20 those of upsert_logged.sql.
\if random(1, 5) > 1
\set n 100000000000 + random(0, int(1250000 * :scale) - 1)
SELECT value FROM bench.plain_logged WHERE key = '6f1d7a52-3c08-4b9e-a5d4-' || :n;
\else
\set i random(0, int(1000000 * :scale) - 1)
\set old 100000000001 + :i / 4 * 5 + mod(:i, 4)
\set n CASE WHEN random(1, 10) = 1 THEN :old ELSE random(200000000000, 999999999999) END
INSERT INTO bench.plain_logged (key, value, expires_at) VALUES ('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'QfM0ZFNwGgQLrxTB78ZferwRZINJcGnzaO4eJ', NULL)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
\endif
