-- A memory cache: 80 of 100 transactions are those of get_memory.sql, 20 those of set_memory.sql.
\if random(1, 5) > 1
\set n 100000000000 + random(0, int(1250000 * :scale) - 1)
SELECT cache_get('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'bench.memory');
\else
\set i random(0, int(1000000 * :scale) - 1)
\set old 100000000001 + :i / 4 * 5 + mod(:i, 4)
\set n CASE WHEN random(1, 10) = 1 THEN :old ELSE random(200000000000, 999999999999) END
SELECT cache_set('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'QfM0ZFNwGgQLrxTB78ZferwRZINJcGnzaO4eJ', NULL, 'bench.memory');
\endif
