-- How fast does cache_get find that a key is absent? All keys are absent, and lie between those that exist.
\set n 100000000000 + 5 * random(0, int(250000 * :scale) - 1)
SELECT cache_get('6f1d7a52-3c08-4b9e-a5d4-' || :n, 'bench.unlogged');
