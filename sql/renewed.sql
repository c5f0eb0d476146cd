-- A row that plain SQL writes over an expired row is visible to the next SELECT; no expression sees the expired row.
SET client_min_messages = warning;
SELECT cache_create('renewed');
ALTER TABLE renewed ADD COLUMN n int DEFAULT 0, ADD COLUMN tag text UNIQUE;
-- Resets the table to one live row and one expired row.
CREATE PROCEDURE start_over() LANGUAGE sql AS $$
    TRUNCATE renewed;
    INSERT INTO renewed (key, value, expires_at, n) VALUES ('live', 'old', clock_timestamp() + interval '1 hour', 40), ('dead', 'old', clock_timestamp() - interval '1 s', 40);
$$;
CREATE VIEW now_there AS SELECT key, value, n, expires_at IS NULL AS for_ever FROM renewed ORDER BY key;
CREATE VIEW stored AS SELECT count(*) FROM renewed AS pgcache_c;

-- A plain INSERT.
CALL start_over();
INSERT INTO renewed (key, value) VALUES ('dead', 'new');
TABLE now_there;
TABLE stored;
INSERT INTO renewed (key, value) VALUES ('live', 'new');
-- Upserts: as common software writes them, and one that counts.
CALL start_over();
INSERT INTO renewed (key, value) VALUES ('dead', 'new'), ('live', 'new') ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value;
TABLE now_there;
CALL start_over();
INSERT INTO renewed AS r (key, n) VALUES ('dead', 1), ('live', 1) ON CONFLICT (key) DO UPDATE SET n = r.n + EXCLUDED.n RETURNING key, n;
CALL start_over();
INSERT INTO renewed AS r (key, value) VALUES ('dead', 'new'), ('live', 'new') ON CONFLICT (key) DO UPDATE SET value = 'not this' WHERE r.value <> 'old' RETURNING key;
CALL start_over();
INSERT INTO renewed (key, value) VALUES ('dead', 'new'), ('live', 'new') ON CONFLICT DO NOTHING RETURNING key;
TABLE now_there;
-- MERGE.
CALL start_over();
MERGE INTO renewed AS r USING (VALUES ('dead'), ('live'), ('fresh')) AS s (key) ON r.key = s.key
 WHEN MATCHED THEN UPDATE SET n = r.n + 1
 WHEN NOT MATCHED THEN INSERT (key, value, n) VALUES (s.key, 'merged', 1);
TABLE now_there;
-- INSERT from a query, in a CTE, through a view and by a prepared statement, and an UPDATE of the key.
CALL start_over();
INSERT INTO renewed (key, value) SELECT k, 'selected' FROM unnest('{dead,fresh}'::text[]) AS k;
TABLE now_there;
CALL start_over();
WITH put AS (INSERT INTO renewed (key, value) VALUES ('dead', 'in a CTE') RETURNING key) SELECT * FROM put;
TABLE now_there;
CALL start_over();
CREATE VIEW by_view AS SELECT key, value FROM renewed;
INSERT INTO by_view VALUES ('dead', 'by a view') ON CONFLICT (key) DO UPDATE SET value = 'not this';
TABLE now_there;
CALL start_over();
UPDATE renewed SET key = 'dead' WHERE key = 'live';
TABLE now_there;
CALL start_over();
PREPARE put AS INSERT INTO renewed (key, n) VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET n = renewed.n + 1 RETURNING n;
SET plan_cache_mode = force_generic_plan;
EXECUTE put('dead');
EXECUTE put('dead');
EXECUTE put('live');
RESET plan_cache_mode;

-- A row that expires during its own update does not block it; another expired row is replaced.
CREATE FUNCTION until_dead() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep_until(expires_at + '10 ms') FROM renewed AS pgcache_c WHERE key = 'soon';
    RETURN true;
END $$;
CREATE PROCEDURE start_soon() LANGUAGE sql AS $$
    CALL start_over();
    INSERT INTO renewed (key, value, expires_at, n) VALUES ('soon', 'old', clock_timestamp() + interval '500 ms', 40);
$$;
CALL start_soon();
UPDATE renewed SET key = key, n = n + 1 WHERE key = 'soon' AND until_dead() RETURNING key, n;
SELECT key, n FROM renewed AS pgcache_c WHERE key = 'soon';
CALL start_soon();
MERGE INTO renewed AS r USING (VALUES ('soon')) AS s (key) ON r.key = s.key AND until_dead()
 WHEN MATCHED THEN UPDATE SET key = s.key, n = r.n + 1
 WHEN NOT MATCHED THEN INSERT (key) VALUES (s.key);
SELECT key, n FROM renewed AS pgcache_c WHERE key = 'soon';
CALL start_soon();
INSERT INTO renewed AS r (key, n) VALUES ('soon', 1)
    ON CONFLICT (key) DO UPDATE SET key = EXCLUDED.key, n = r.n + 1 WHERE until_dead() RETURNING key, n;
CALL start_over();
INSERT INTO renewed (key) VALUES ('live') ON CONFLICT (key) DO UPDATE SET key = 'dead' RETURNING key, value;
TABLE now_there;
TABLE stored;

-- COPY, with and without a WHERE condition.
CALL start_over();
COPY renewed (key, value) FROM STDIN;
dead	copied
fresh	copied
\.
TABLE now_there;
CALL start_over();
COPY renewed (value, key) FROM STDIN WHERE value <> 'left out' AND expires_at IS NULL;
left out	live
copied	dead
\.
COPY renewed (value, key) FROM STDIN WHERE value = 'chosen';
not chosen	dead
chosen	fresh
\.
TABLE now_there;
CALL start_over();
COPY renewed (key, value) FROM STDIN;
dead	copied
live	copied
\.
TABLE stored;
CREATE FUNCTION copy_again() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    COPY renewed (key, value) FROM PROGRAM 'echo dead,by plpgsql' (FORMAT csv);
END $$;
SELECT copy_again();
TABLE now_there;
CALL start_over();
SELECT copy_again();
TABLE now_there;
CALL start_over();
SET pgcache.show_expired = on;
COPY renewed (key, value) FROM STDIN;
dead	copied
\.
RESET pgcache.show_expired;

-- The same key twice in one statement behaves as in any table.
CALL start_over();
INSERT INTO renewed (key, value) VALUES ('dead', 'one'), ('dead', 'two');
INSERT INTO renewed (key, value) VALUES ('dead', 'one'), ('dead', 'two') ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value;
INSERT INTO renewed (key, value) VALUES ('dead', 'one'), ('dead', 'two') ON CONFLICT DO NOTHING;
TABLE now_there;
-- A failed statement or a rollback keeps the expired row.
CALL start_over();
INSERT INTO renewed (key, value) VALUES ('dead', 'new'), ('live', 'new');
TABLE stored;
BEGIN;
SAVEPOINT s;
INSERT INTO renewed (key, value) VALUES ('dead', 'new');
ROLLBACK TO s;
TABLE stored;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO renewed (key, value) VALUES ('dead', 'repeatable') ON CONFLICT (key) DO UPDATE SET value = 'not this';
TABLE now_there;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO renewed (key, value) VALUES ('dead', 'serializable');
TABLE now_there;
COMMIT;

-- A role with only INSERT also writes over an expired row, but cannot remove the row by calling the function itself.
CALL start_over();
CREATE ROLE regress_pgcache_writer;
GRANT INSERT ON renewed TO regress_pgcache_writer;
SET ROLE regress_pgcache_writer;
SELECT pgcache.renew('dead', 'renewed', NULL), pgcache.renew(NULL, 'renewed', NULL), pgcache.renew('dead', NULL, 'live'), pgcache.renew('dead', 'pg_class', NULL);
RESET ROLE;
TABLE stored;
SET ROLE regress_pgcache_writer;
INSERT INTO renewed (key, value) VALUES ('dead', 'by another');
RESET ROLE;
TABLE now_there;
CALL start_over();
SET ROLE regress_pgcache_writer;
SELECT pgcache.renew_copied('dead', 'renewed'), pgcache.renew_copied(NULL, NULL);
COPY renewed (key, value) FROM STDIN;
dead	copied by another
\.
RESET ROLE;
TABLE now_there;
-- An expired row is replaced even if a policy hides it from the writer.
ALTER TABLE renewed ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON renewed USING (value = 'mine') WITH CHECK (true);
ALTER TABLE renewed NO FORCE ROW LEVEL SECURITY;
CALL start_over();
ALTER TABLE renewed FORCE ROW LEVEL SECURITY;
GRANT SELECT, UPDATE ON renewed TO regress_pgcache_writer;
SET ROLE regress_pgcache_writer;
INSERT INTO renewed (key, value) VALUES ('dead', 'mine') ON CONFLICT (key) DO UPDATE SET value = 'not this' RETURNING key, value;
RESET ROLE;
ALTER TABLE renewed DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
TABLE now_there;

-- User-defined triggers see the DELETE of the expired row, as in a sweep, and no other change of it.
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE INFO '% %: % -> %', TG_WHEN, TG_OP, OLD.value, NEW.value;
    RETURN coalesce(NEW, OLD);
END $$;
CALL start_over();
CREATE TRIGGER tell BEFORE INSERT OR UPDATE OR DELETE ON renewed FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO renewed (key, value) VALUES ('dead', 'told') ON CONFLICT (key) DO UPDATE SET value = 'not this';
DROP TRIGGER tell ON renewed;
TABLE now_there;

-- With pgcache.show_expired, expired rows also conflict with writes.
CALL start_over();
SET pgcache.show_expired = on;
INSERT INTO renewed (key, value) VALUES ('dead', 'new');
UPDATE renewed SET key = key;
RESET pgcache.show_expired;
TABLE stored;
-- The functions read the same rows.
INSERT INTO renewed (key, value) VALUES ('dead', 'for functions');
SELECT cache_get('dead', 'renewed');
SELECT * FROM pgcache.verify('renewed');


-- Without user-defined objects on the table, expired rows are removed without the executor.
SELECT cache_create('renewed_plain');
INSERT INTO renewed_plain SELECT 'k' || n, 'old', clock_timestamp() - interval '1 s' FROM generate_series(1, 1000) AS n;
INSERT INTO renewed_plain SELECT 'k' || n, 'new' FROM generate_series(501, 1500) AS n ON CONFLICT (key) DO UPDATE SET value = 'not this';
SELECT value, count(*) FROM renewed_plain AS pgcache_c GROUP BY value ORDER BY value;
INSERT INTO renewed_plain VALUES ('k1', 'new'), ('k1', 'newer') ON CONFLICT DO NOTHING RETURNING *;
INSERT INTO renewed_plain VALUES ('p', 'past', '-infinity'), ('p', 'new', NULL);
SELECT value FROM renewed_plain WHERE key = 'p';
INSERT INTO renewed_plain VALUES (repeat('long', 600), 'v', '-infinity');
INSERT INTO renewed_plain VALUES (repeat('long', 600), 'v'), (NULL, 'v');
SELECT * FROM pgcache.verify('renewed_plain');
CREATE TABLE plain (key text PRIMARY KEY, expires_at timestamptz);
INSERT INTO plain VALUES ('k', '-infinity');
INSERT INTO plain VALUES ('k', NULL);
EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO plain VALUES ('k', NULL);
EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO renewed_plain VALUES ('k', NULL);

DROP TABLE renewed, renewed_plain, plain CASCADE;
DROP ROLE regress_pgcache_writer;
DROP FUNCTION tell, until_dead, copy_again;
DROP PROCEDURE start_over, start_soon;
