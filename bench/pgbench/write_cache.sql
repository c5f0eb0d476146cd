-- How fast does cache_set store? 10 of 100 overwrite an entry, the others are new.
\set i random(0, :entries - 1)
\set old 100000000000 + :i / 4 * 5 + :i % 4 + 1
\set n CASE WHEN random(1, 10) = 1 THEN :old ELSE random(200000000000, 999999999999) END
SELECT cache_set('6f1d7a52-3c08-4b9e-a5d4-' || :n, :value, NULL, 'bench');
