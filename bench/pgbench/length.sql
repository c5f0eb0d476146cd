-- What does a call with a key cost if it reads no entry?
\set n 100000000000 + random(0, int(1250000 * :scale) - 1)
SELECT length('6f1d7a52-3c08-4b9e-a5d4-' || :n);
