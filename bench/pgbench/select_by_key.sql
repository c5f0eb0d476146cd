-- How fast does a plain unlogged table answer a SELECT by its key? 80 of 100 keys exist.
\set n 100000000000 + random(0, int(1250000 * :scale) - 1)
SELECT value FROM bench.plain WHERE key = '6f1d7a52-3c08-4b9e-a5d4-' || :n;
