-- What does it cost on top to draw a number and to make a key of it?
\set n 100000000000 + random(0, :slots - 1)
SELECT '6f1d7a52-3c08-4b9e-a5d4-' || :n;
