-- Pages of a memory cache: each returns the keys that are live at its call, from any starting point.
SELECT cache_create('p', storage => 'memory', value_type => 'bytea'), cache_create('q', storage => 'memory');
SELECT count(cache_set_bytes('k' || to_char(i, 'FM0000'), '\xff', cache => 'p')), count(cache_set('k' || i, 'v', cache => 'q')) FROM generate_series(1, 3000) AS i;

-- Pages of any length return each key once and in order, even pages longer than the list of keys that a walk keeps.
CREATE FUNCTION paged(cache regclass, length int, prefix text = '', OUT keys bigint, OUT pages int, OUT in_order bool) LANGUAGE plpgsql AS $$
DECLARE last text; page text[];
BEGIN
    keys := 0; pages := 0; in_order := true;
    LOOP
        page := ARRAY(SELECT key FROM cache_keys(prefix, last, length, cache));
        keys := keys + cardinality(page); pages := pages + 1;
        in_order := in_order AND (last IS NULL OR cardinality(page) = 0 OR last COLLATE "C" < page[1])
                    AND page = ARRAY(SELECT k FROM unnest(page) AS k ORDER BY k COLLATE "C");
        EXIT WHEN cardinality(page) < length;
        last := page[cardinality(page)];
    END LOOP;
END $$;
SELECT length, paged.* FROM unnest(ARRAY[1, 7, 100, 1024, 1025, 1500, 2999, 3000, 3001, 2147483647]) AS length, paged('p', length);
SELECT prefix, paged.* FROM unnest(ARRAY['', 'k', 'k1', 'k12', 'k1234', 'l']) AS prefix, paged('q', 50, prefix);
SELECT cache_count('p'), cache_count('q');

-- Between two pages, a key added behind the last page appears on the next one, and a removed key does not.
SELECT array_agg(key) FROM cache_keys('k000', max_rows => 3, cache => 'p');
SELECT cache_set_bytes('k0003a', '\x01', cache => 'p'), cache_delete('k0004', 'p'), cache_set_bytes('k0005', '\x05', '1 millisecond', 'p'), cache_set_bytes('k0002a', '\x', cache => 'p');
SELECT pg_sleep(0.01);
SELECT array_agg(key) FROM cache_keys('k000', 'k0003', 3, 'p');
SELECT cache_set_bytes('k0005', '\x05', cache => 'p'), cache_delete('k0003a', 'p');
SELECT array_agg(key) FROM cache_keys('k000', 'k0003', 3, 'p');
SELECT key, value FROM cache_scan_bytes('k000', 'k0003', 3, 'p');
-- Pages that start earlier, later, or beyond the prefix, and pages with another prefix.
SELECT array_agg(key) FROM cache_keys('k000', 'k0001', 3, 'p');
SELECT array_agg(key) FROM cache_keys('k00', 'k0001', 3, 'p');
SELECT array_agg(key) FROM cache_keys('', 'k0998', 3, 'p');
SELECT array_agg(key) FROM cache_keys('k0', 'k0998', 3, 'p');
SELECT array_agg(key) FROM cache_keys('k000', 'k0998', 3, 'p');
SELECT array_agg(key) FROM cache_keys('', 'k0998', 3, 'q');
SELECT array_agg(key) FROM cache_keys('k1000', NULL, 3, 'p');
-- More new keys than the journal holds and a walk keeps.
SELECT array_agg(key) FROM cache_keys(max_rows => 2, cache => 'p');
SELECT count(cache_set_bytes('k0001.' || i, '\x', cache => 'p')) FROM generate_series(1, 20000) AS i;
SELECT count(*) AS keys, count(DISTINCT key) AS distinct_keys, min(key), max(key) FROM cache_keys('k0001', 'k0001', 100000, 'p');
SELECT cache_delete_prefix('k0001.', 'p'), paged.* FROM paged('p', 100);

-- Between two pages all entries go and come back, then another cache takes the name.
SELECT array_agg(key) FROM cache_keys(max_rows => 2, cache => 'p');
SELECT cache_clear('p');
SELECT array_agg(key), cache_count('p') FROM cache_keys(after => 'k0002', max_rows => 2, cache => 'p');
SELECT cache_set_many_bytes(ARRAY['k0001', 'k0009', 'k0010', 'k0011'], ARRAY['\x01', '\x09', '\x10', '\x11']::bytea[], cache => 'p');
SELECT array_agg(key), cache_count('p') FROM cache_keys(after => 'k0002', max_rows => 2, cache => 'p');
SELECT cache_drop('p'), cache_create('p', storage => 'memory');
SELECT array_agg(key), cache_count('p') FROM cache_keys(after => 'k0010', max_rows => 2, cache => 'p');
SELECT cache_set('k0012', 'v', cache => 'p');
SELECT array_agg(key), cache_count('p') FROM cache_keys(after => 'k0010', max_rows => 2, cache => 'p');

-- A page that fails in its middle can be read again.
SELECT cache_create('broken', storage => 'memory', value_type => 'bytea');
SELECT cache_set_many_bytes('{a,b,c,d}', ARRAY['a', 'b', '\xff', 'd']::bytea[], cache => 'broken');
SELECT array_agg(key) FROM cache_scan(max_rows => 2, cache => 'broken');
SELECT state FROM error_of($$SELECT * FROM cache_scan(after => 'b', cache => 'broken')$$);
SELECT array_agg(key) FROM cache_scan_bytes(after => 'b', cache => 'broken');

-- Entries that depend on a row that this session has changed are absent for this session.
CREATE TABLE source (id text PRIMARY KEY);
SELECT cache_depend('source', 'id', 'q');
INSERT INTO source VALUES ('k1'), ('k10');
SELECT cache_set_many('{k1,k10}', '{v,v}', cache => 'q');
BEGIN;
SELECT array_agg(key) FROM cache_keys(max_rows => 3, cache => 'q');
UPDATE source SET id = id;
SELECT array_agg(key), cache_count('q') FROM cache_keys(max_rows => 3, cache => 'q');
SELECT array_agg(key) FROM cache_keys(after => 'k', max_rows => 3, cache => 'q');
SELECT cache_set('k10', 'new', cache => 'q');
SELECT array_agg(key), cache_count('q') FROM cache_keys(after => 'k', max_rows => 3, cache => 'q');
ROLLBACK;
SELECT array_agg(key), cache_count('q') FROM cache_keys(after => 'k', max_rows => 3, cache => 'q');
SELECT key, found, value FROM cache_lookup_many('{k10,none,k1}', 'q');

-- More functions on the same memory cache.
SELECT cache_add_bytes('b', '\x62', cache => 'q'), cache_replace_bytes('b', '\x63', cache => 'q'), cache_cas_bytes('b', '\x63', '\x64', cache => 'q'), cache_get_touch_bytes('b', '1 hour', 'q');
SELECT cache_delete_if_bytes('b', '\x63', 'q'), cache_take_bytes('b', 'q'), cache_incr_existing('b', 1, 'q') IS NULL AS none, cache_exists('b', 'q');
SELECT cache_incr('n', 5, '1 hour', 'q'), cache_incr_existing('n', 2, 'q'), cache_ttl('n', 'q') > '59 minutes' AS deadline_stays, cache_set('neg', NULL, cache => 'q'), cache_incr_existing('neg', 3, 'q');
SELECT value, state, cache_set_leased_bytes('l', '\x6c', lease, '1 hour', 'q') AS set, cache_set_leased_bytes('l', '\x6d', lease, cache => 'q') AS again
  FROM cache_lease_bytes('l', cache => 'q');
SELECT value, state FROM cache_lease_bytes('l', cache => 'q');
BEGIN READ ONLY;
SELECT cache_incr_existing('n', cache => 'q'), cache_take_bytes('l', 'q'), cache_count('q');
ROLLBACK;

DROP TABLE source;
DROP VIEW p, q, broken;
DROP FUNCTION paged;
