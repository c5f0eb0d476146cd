-- Caches as partitions of a plain table: a write through that table replaces expired rows instead of
-- conflicting with them.
SET client_min_messages = warning;
CREATE FUNCTION triggers(OUT cache regclass, OUT is_copy boolean) RETURNS SETOF record LANGUAGE sql AS $$
    SELECT tgrelid::regclass, tgparentid <> 0 FROM pg_trigger WHERE tgname = 'pgcache_renew' ORDER BY tgrelid::regclass::text
$$;
-- The partition key is not the cache key; the caches have another order of columns, and one of them was attached.
CREATE TABLE entries (region text, key text COLLATE "C", value text, expires_at timestamptz) PARTITION BY LIST (region);
SELECT cache_create('eu', ttl => '1 hour');
ALTER TABLE eu ADD region text;
CREATE TABLE us (gone int, expires_at timestamptz, value text, key text COLLATE "C" PRIMARY KEY, region text);
ALTER TABLE us DROP COLUMN gone;
SELECT cache_attach('us');
CREATE TABLE rest PARTITION OF entries DEFAULT;
ALTER TABLE entries ATTACH PARTITION eu FOR VALUES IN ('eu');
ALTER TABLE entries ATTACH PARTITION us FOR VALUES IN ('us');
SELECT * FROM triggers();
CREATE FUNCTION dead() RETURNS void LANGUAGE sql AS $$
    DELETE FROM entries AS pgcache_c;
    INSERT INTO entries SELECT r, k, 'dead', '-infinity' FROM unnest(ARRAY['eu', 'us']) AS r, unnest(ARRAY['a', 'b', 'c', 'd']) AS k;
$$;
SELECT dead();
SELECT count(*) FROM entries;
INSERT INTO entries VALUES ('eu', 'a', '1', NULL), ('us', 'a', '2', NULL), ('other', 'a', '3', NULL), ('other', 'a', '4', NULL);
INSERT INTO entries VALUES ('eu', 'b', '1', NULL), ('eu', 'a', '2', NULL) ON CONFLICT DO NOTHING RETURNING key, value;
INSERT INTO entries VALUES ('us', 'a', '2', NULL);
MERGE INTO entries AS e USING (VALUES ('eu', 'c'), ('us', 'b'), ('eu', 'a')) AS v (r, k) ON e.region = v.r AND e.key = v.k
 WHEN MATCHED THEN UPDATE SET value = value || ' merged' WHEN NOT MATCHED THEN INSERT VALUES (v.r, v.k, 'merged', NULL);
-- An update of the key, and a row that moves from one cache to the other.
UPDATE entries SET key = 'd' WHERE region = 'eu' AND key = 'c';
UPDATE entries SET region = 'us', key = 'd' WHERE region = 'eu' AND key = 'd';
COPY entries (region, key, value) FROM stdin;
us	c	copied
eu	c	copied
\.
SELECT region, key, value FROM entries ORDER BY 1, 2, 3;
SELECT key, value FROM cache_scan(cache => 'us');
-- Postgres uses the DEFAULT of the table that the statement names, not that of the cache.
INSERT INTO entries (region, key) VALUES ('eu', 'ttl');
SELECT expires_at FROM eu WHERE key = 'ttl';
-- With pgcache.show_expired, expired rows conflict with writes.
SELECT dead();
SET pgcache.show_expired = on;
INSERT INTO entries VALUES ('eu', 'a', '1', NULL);
RESET pgcache.show_expired;
-- A BEFORE trigger that fires earlier may set the key.
CREATE FUNCTION other_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.key := 'b'; RETURN NEW; END $$;
CREATE TRIGGER before BEFORE INSERT ON eu FOR EACH ROW EXECUTE FUNCTION other_key();
INSERT INTO entries VALUES ('eu', 'none', '1', NULL) RETURNING key;
DROP TRIGGER before ON eu;
-- The writer needs no privileges on the cache, and no DELETE; only the owner may create the trigger.
CREATE ROLE regress_pgcache_routed;
GRANT INSERT ON entries TO regress_pgcache_routed;
GRANT TRIGGER, SELECT, INSERT ON us TO regress_pgcache_routed;
SET ROLE regress_pgcache_routed;
INSERT INTO entries VALUES ('eu', 'a', 'theirs', NULL), ('us', 'a', 'theirs', NULL);
CREATE TRIGGER mine BEFORE INSERT ON us FOR EACH ROW EXECUTE FUNCTION pgcache.renew_row();
RESET ROLE;
SELECT region, key, value FROM entries ORDER BY 1, 2;
-- The trigger is dropped when the partition is detached.
ALTER TABLE entries DETACH PARTITION eu;
SELECT * FROM triggers();
SELECT cache_detach('us');
SELECT * FROM triggers();
BEGIN;
ALTER TABLE entries ATTACH PARTITION eu FOR VALUES IN ('eu');
ROLLBACK;
SELECT * FROM triggers();
-- Several levels with a unique key: a partition of a partition is a partitioned cache.
CREATE TABLE whole (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY RANGE (key);
CREATE TABLE middle PARTITION OF whole FOR VALUES FROM (MINVALUE) TO ('n') PARTITION BY LIST (key);
CREATE TABLE parts (expires_at timestamptz, value text, key text COLLATE "C" PRIMARY KEY) PARTITION BY HASH (key);
CREATE TABLE parts_0 (value text, key text COLLATE "C" NOT NULL, expires_at timestamptz);
ALTER TABLE parts ATTACH PARTITION parts_0 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT cache_attach('parts', '1 hour');
PREPARE put AS INSERT INTO whole VALUES ($1, 'new') ON CONFLICT (key) DO UPDATE SET value = whole.value || ' and ' || excluded.value RETURNING value;
SET plan_cache_mode = force_generic_plan;
ALTER TABLE middle ATTACH PARTITION parts DEFAULT;
SELECT * FROM triggers();
INSERT INTO parts SELECT '-infinity', 'dead', 'k' || n FROM generate_series(1, 8) AS n;
EXECUTE put('k1');
EXECUTE put('k1');
EXECUTE put('k2');
UPDATE whole SET key = 'k3' WHERE key = 'k2';
INSERT INTO whole VALUES ('k4', 'x') ON CONFLICT (key) DO UPDATE SET key = 'k7';
INSERT INTO whole VALUES ('k4', 'x') ON CONFLICT (key) DO UPDATE SET key = 'k7' RETURNING key;
INSERT INTO middle VALUES ('k6', 'x');
SELECT key, value, expires_at IS NULL AS for_ever FROM whole ORDER BY key;
SELECT tableoid::regclass, count(*) FROM parts GROUP BY 1 ORDER BY 1;
ALTER TABLE middle DETACH PARTITION parts;
SELECT * FROM triggers();
SELECT cache_detach('parts');
-- An existing partition becomes a hand-made cache, as in a dump, also one from an older version.
CREATE TABLE by_hand PARTITION OF whole FOR VALUES FROM ('n') TO (MAXVALUE);
CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON by_hand FOR EACH ROW EXECUTE FUNCTION pgcache.record('ttl=PT3600S');
SELECT * FROM triggers();
SELECT pgcache.put_default('by_hand');
SELECT * FROM triggers();
INSERT INTO by_hand VALUES ('x', 'dead', '-infinity');
INSERT INTO whole VALUES ('x', 'new');
SELECT value FROM by_hand;
DROP TABLE entries, whole, eu, us, parts;
DROP FUNCTION triggers, dead, other_key;
DROP ROLE regress_pgcache_routed;
