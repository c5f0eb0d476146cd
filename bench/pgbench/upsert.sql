-- How fast does a plain unlogged table take an upsert? 10 of 100 overwrite an entry, the others are new.
\set i random(0, int(1000000 * :scale) - 1)
\set old 100000000001 + :i / 4 * 5 + mod(:i, 4)
\set n CASE WHEN random(1, 10) = 1 THEN :old ELSE random(200000000000, 999999999999) END
INSERT INTO bench.plain (key, value, expires_at) VALUES ('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'QfM0ZFNwGgQLrxTB78ZferwRZINJcGnzaO4eJ', NULL)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
