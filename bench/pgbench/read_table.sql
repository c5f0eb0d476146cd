-- How fast does a plain table answer a read by key? 80 of 100 keys exist (see rounds/law.py).
\set n 100000000000 + random(0, :slots - 1)
SELECT value FROM bench WHERE key = '6f1d7a52-3c08-4b9e-a5d4-' || :n;
