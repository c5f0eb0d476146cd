\set n 1000000000000000 + random(1, 1000000)
SELECT value FROM plain WHERE key = :n;
