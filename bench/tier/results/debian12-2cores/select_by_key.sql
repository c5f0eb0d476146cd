\set n 100000000000 + random(1, 1000000)
SELECT value FROM plain WHERE key = 'key:' || :n;
