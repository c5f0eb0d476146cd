-- Hiding expired rows opens no hole in row-level security; foreign keys and pgcache's own statements still see them.
SET client_min_messages = warning;
\set VERBOSITY terse
CREATE ROLE regress_pgcache_tenant;
-- Reports each value that it receives. It must not receive a row that a policy hides, although no condition is cheaper.
CREATE FUNCTION leak(value text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
    RAISE WARNING 'leak was shown %', value;
    RETURN true;
END $$;
SELECT cache_create('mine'), cache_create('open'), cache_create('half');
CREATE TABLE heap (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
CREATE TABLE parted (key text COLLATE "C", value text, expires_at timestamptz) PARTITION BY LIST (key);
ALTER TABLE parted ATTACH PARTITION half FOR VALUES IN ('own', 'secret', 'dead');
CREATE TABLE parted_heap PARTITION OF parted DEFAULT;
CREATE PROCEDURE fill(tab regclass) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($q$INSERT INTO %s VALUES ('own', 'own', NULL), ('secret', 'secret', NULL), ('dead', 'own', clock_timestamp() - interval '1 s')$q$, tab);
END $$;
CALL fill('mine');
CALL fill('open');
CALL fill('heap');
CALL fill('parted');
INSERT INTO parted VALUES ('other', 'secret');
GRANT SELECT ON mine, open, half, heap, parted TO regress_pgcache_tenant;
ALTER TABLE mine ENABLE ROW LEVEL SECURITY;
ALTER TABLE parted ENABLE ROW LEVEL SECURITY;
ALTER TABLE heap ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON mine USING (value = 'own');
CREATE POLICY own ON parted USING (value = 'own');
CREATE POLICY own ON heap USING (value = 'own');
SET ROLE regress_pgcache_tenant;
SELECT key FROM mine WHERE leak('mine ' || value);
SELECT key FROM parted WHERE leak('parted ' || value);
SELECT key FROM (SELECT key, value FROM mine UNION ALL SELECT key, value FROM heap) AS u WHERE leak('union ' || value);
SELECT key FROM (SELECT key, value FROM heap UNION ALL SELECT key, value FROM mine UNION ALL SELECT key, value FROM parted) AS u WHERE leak('three ' || value);
SELECT key FROM (SELECT key, value FROM open WHERE key <> 'secret' UNION ALL SELECT key, value FROM parted) AS u WHERE leak('with open ' || value);
SELECT a.key FROM mine AS a JOIN heap AS b USING (key) WHERE leak('join ' || a.value || ' ' || b.value);
RESET ROLE;
-- A query's own conditions still use their index beside a table with policies.
ALTER TABLE open ADD COLUMN n numeric;
CREATE INDEX ON open (n);
CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query;
END $$;
SET enable_bitmapscan = off;
SET enable_seqscan = off;
SET ROLE regress_pgcache_tenant;
SELECT trim(p) AS condition FROM plan_of('SELECT open.key FROM open, heap WHERE n = 7') AS p WHERE p LIKE '%Index Cond%' OR p LIKE '%Filter%';
RESET ROLE;
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP TABLE heap, parted CASCADE;

-- A partitioned cache, a cache as a partition of a plain table, and a cache with a plain inheritance child.
CREATE TABLE whole (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz) PARTITION BY HASH (key);
CREATE TABLE whole_0 PARTITION OF whole FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE whole_1 PARTITION OF whole FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON whole FOR EACH ROW EXECUTE FUNCTION pgcache.record();
INSERT INTO whole SELECT 'k' || n, 'v', CASE WHEN n > 50 THEN clock_timestamp() - interval '1 s' END FROM generate_series(1, 100) AS n;
SELECT count(*) FROM whole;
SELECT (SELECT count(*) FROM whole_0) + (SELECT count(*) FROM whole_1) AS direct;
EXPLAIN (COSTS OFF) SELECT * FROM whole;
SET enable_partitionwise_join = on;
SELECT count(*) FROM whole AS a JOIN whole AS b USING (key);
SELECT count(*) FROM whole AS a LEFT JOIN whole AS b USING (key) WHERE b.key IS NULL;
RESET enable_partitionwise_join;
DELETE FROM whole WHERE key IN ('k1', 'k100');
SELECT count(*), (SELECT count(*) FROM whole AS pgcache_c) AS stored FROM whole;
CREATE TABLE mixed (LIKE open) PARTITION BY LIST (key);
CREATE TABLE mixed_heap PARTITION OF mixed FOR VALUES IN ('a');
ALTER TABLE mixed ATTACH PARTITION open DEFAULT;
INSERT INTO mixed VALUES ('a', 'plain', '-infinity'), ('b', 'cache', '-infinity'), ('c', 'cache', NULL);
SELECT key, value FROM mixed ORDER BY key;
UPDATE mixed SET value = 'touched';
SELECT key, value FROM mixed ORDER BY key;
SELECT * FROM (SELECT key FROM mixed UNION ALL SELECT key FROM mine) AS u ORDER BY key;
SELECT cache_create('elder');
CREATE TABLE child () INHERITS (elder);
INSERT INTO elder VALUES ('e', 'v', NULL), ('dead', 'v', '-infinity');
INSERT INTO child VALUES ('c', 'v', NULL), ('dead', 'v', '-infinity');
SELECT key FROM elder ORDER BY key;
SELECT key FROM child ORDER BY key;
DELETE FROM elder;
SELECT key FROM elder AS pgcache_c UNION ALL SELECT key FROM ONLY elder AS pgcache_c;
DROP TABLE whole, mixed, elder CASCADE;

-- Foreign keys from a cache with CASCADE and NO ACTION, and to a cache.
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1), (2);
SELECT cache_create('kids'), cache_create('referred');
ALTER TABLE kids ADD COLUMN parent int REFERENCES parent ON DELETE CASCADE, ADD COLUMN other int REFERENCES parent;
INSERT INTO kids VALUES ('live', 'v', NULL, 1, NULL), ('dead', 'v', '-infinity', 1, NULL), ('keeps', 'v', '-infinity', NULL, 2);
DELETE FROM parent WHERE id = 2;
DELETE FROM parent WHERE id = 1;
SELECT key FROM kids AS pgcache_c;
CREATE UNLOGGED TABLE refers (key text REFERENCES referred ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO referred VALUES ('dead', 'v', '-infinity'), ('dead 2', 'v', '-infinity'), ('live', 'v', NULL), ('live 2', 'v', NULL);
INSERT INTO refers VALUES ('dead'), ('live'), ('live 2');
SELECT count(*) FROM refers;
-- A BEFORE trigger within a cascade sees expired rows; within a user's own statement it does not. (AFTER triggers fire
-- after the cascade.)
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING '% of %: % rows of referred', TG_OP, TG_TABLE_NAME, (SELECT count(*) FROM referred);
    RETURN OLD;
END $$;
CREATE TRIGGER tell BEFORE DELETE ON refers FOR EACH ROW EXECUTE FUNCTION tell();
DELETE FROM refers WHERE key = 'live 2';
DELETE FROM referred WHERE key = 'live';
SELECT cache_expire('referred');
SELECT count(*) FROM refers;
-- Validating a new foreign key is an ordinary query, so it does not see expired rows.
INSERT INTO referred VALUES ('dead', 'v', '-infinity');
ALTER TABLE refers DROP CONSTRAINT refers_key_fkey;
INSERT INTO refers VALUES ('dead');
ALTER TABLE refers ADD CONSTRAINT again FOREIGN KEY (key) REFERENCES referred;
SET pgcache.show_expired = on;
ALTER TABLE refers ADD CONSTRAINT again FOREIGN KEY (key) REFERENCES referred;
RESET pgcache.show_expired;
DROP TABLE kids, referred, refers, parent;

-- A user-defined trigger within pgcache's own statements sees only what the user sees, whatever their plan and role.
CREATE FUNCTION count_mine() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING '%: % rows', TG_OP, (SELECT count(*) FROM public.mine);
    RETURN NULL;
END $$;
CREATE TRIGGER count_mine AFTER INSERT OR UPDATE OR DELETE ON mine FOR EACH ROW EXECUTE FUNCTION count_mine();
ALTER TABLE mine DISABLE ROW LEVEL SECURITY;
SELECT cache_set('new', 'v', cache => 'mine');
SELECT cache_touch('new', '1 hour', 'mine');
SELECT cache_delete('new', 'mine');
GRANT DELETE ON mine TO regress_pgcache_tenant;
REVOKE SELECT ON mine FROM regress_pgcache_tenant;
SET ROLE regress_pgcache_tenant;
SELECT cache_delete('secret', 'mine');
RESET ROLE;
INSERT INTO mine AS pgcache_c VALUES ('dead 2', 'v', '-infinity');
SELECT cache_expire('mine', 1);
SELECT cache_get('dead', 'mine'), cache_exists('dead', 'mine'), (SELECT count(*) FROM mine AS pgcache_c) AS stored;

DROP TABLE mine;
DROP FUNCTION leak, tell, count_mine, plan_of;
DROP PROCEDURE fill;
DROP ROLE regress_pgcache_tenant;
