\set n random(1, 1000)
\set c random(1, 100)
SELECT cache_get('key:' || :n, ('c' || :c)::regclass);
