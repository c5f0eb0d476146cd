-- Plain SQL does not see the expired rows of a cache, whatever the plan. Other tables are not filtered.
SET client_min_messages = warning;
SELECT cache_create('hidden'), cache_create('hidden_other');
CREATE TABLE plain (key text PRIMARY KEY, value text, expires_at timestamptz);
-- Fills a table with 500 expired and 500 live rows; one of the live rows has no deadline.
CREATE PROCEDURE fill(tab regclass) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('TRUNCATE %s', tab);
    EXECUTE format($q$INSERT INTO %s SELECT 'dead ' || n, 'v', clock_timestamp() - interval '1 s' FROM generate_series(1, 500) AS n
                      UNION ALL SELECT 'live ' || n, 'v', CASE WHEN n > 1 THEN clock_timestamp() + interval '1 hour' END
                      FROM generate_series(1, 500) AS n$q$, tab);
END $$;
CALL fill('hidden');
CALL fill('hidden_other');
CALL fill('plain');
CREATE INDEX hidden_deadline ON hidden (expires_at) INCLUDE (key);
ANALYZE hidden, hidden_other, plain;

-- Counts the rows of a query whose plan must contain this node. Runs before and after VACUUM.
CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query;
END $$;
CREATE FUNCTION found(node text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (%s) AS q', query) INTO n;
    RETURN CASE WHEN string_agg(p, E'\n') LIKE '%' || node || '%' THEN n::text ELSE 'no such plan: ' || string_agg(p, ' ') END
      FROM plan_of(query) AS p;
END $$;
CREATE TEMP TABLE path (number serial, node text, settings text, query text);
INSERT INTO path (node, settings, query) VALUES
    ('Seq Scan', 'indexscan,bitmapscan,indexonlyscan', 'SELECT value FROM hidden'),
    ('Index Scan', 'seqscan,bitmapscan', $$SELECT value FROM hidden WHERE key >= 'a'$$),
    ('Index Only Scan', 'seqscan,bitmapscan', $$SELECT key FROM hidden WHERE expires_at < now() + interval '1 year'$$),
    ('Bitmap Heap Scan', 'seqscan,indexscan,indexonlyscan', $$SELECT value FROM hidden WHERE key >= 'a'$$),
    ('Tid Scan', 'seqscan,indexscan,indexonlyscan,bitmapscan', $$SELECT value FROM hidden WHERE ctid = ANY (ARRAY(SELECT pgcache_c.ctid FROM hidden AS pgcache_c))$$),
    ('Tid Range Scan', 'seqscan,indexscan,indexonlyscan,bitmapscan', $$SELECT value FROM hidden WHERE ctid < '(9999,0)'$$),
    ('Sample Scan', '', $$SELECT value FROM hidden TABLESAMPLE SYSTEM (100)$$),
    ('Hash Join', 'mergejoin,nestloop', $$SELECT * FROM hidden AS a JOIN hidden_other AS b USING (key)$$),
    ('Merge Join', 'hashjoin,nestloop', $$SELECT * FROM hidden AS a JOIN hidden_other AS b USING (key)$$),
    ('Nested Loop', 'hashjoin,mergejoin', $$SELECT * FROM hidden AS a JOIN hidden_other AS b USING (key)$$),
    ('', '', $$SELECT p.key FROM plain AS p LEFT JOIN hidden AS h USING (key) WHERE h.key IS NULL$$),
    ('', '', $$SELECT p.key FROM hidden AS h FULL JOIN plain AS p USING (key) WHERE h.key IS NOT NULL$$),
    ('Anti', '', $$SELECT p.key FROM plain AS p WHERE NOT EXISTS (SELECT FROM hidden AS h WHERE h.key = p.key)$$),
    ('', '', $$SELECT p.value FROM plain AS p WHERE EXISTS (SELECT FROM hidden AS h WHERE h.key = p.key)$$),
    ('SubPlan', '', $$SELECT p.key FROM plain AS p WHERE (SELECT h.key FROM hidden AS h WHERE h.key = p.key OFFSET 0) IS NOT NULL$$),
    ('CTE', '', $$WITH h AS MATERIALIZED (SELECT * FROM hidden) SELECT * FROM h$$),
    ('Append', '', $$SELECT key FROM hidden UNION ALL SELECT key FROM hidden_other WHERE false OR key > 'a'$$),
    ('WindowAgg', '', $$SELECT count(*) OVER () FROM hidden$$),
    ('LockRows', '', $$SELECT key FROM hidden FOR UPDATE$$);
CREATE PROCEDURE look() LANGUAGE plpgsql AS $$
DECLARE p path; setting text;
BEGIN
    FOR p IN SELECT * FROM path ORDER BY number LOOP
        FOR setting IN SELECT s FROM string_to_table(p.settings, ',') AS s WHERE s <> '' LOOP
            PERFORM set_config('enable_' || setting, 'off', true);
        END LOOP;
        RAISE INFO '%: %', p.query, found(p.node, p.query);
        FOR setting IN SELECT s FROM string_to_table(p.settings, ',') AS s WHERE s <> '' LOOP
            PERFORM set_config('enable_' || setting, 'on', true);
        END LOOP;
    END LOOP;
END $$;
CALL look();
VACUUM hidden, hidden_other, plain;
CALL look();

-- Views, functions, materialized views, and COPY of a query.
CREATE VIEW hidden_view AS SELECT * FROM hidden;
CREATE FUNCTION count_in_sql() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM hidden';
CREATE FUNCTION count_in_plpgsql() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT count(*) FROM hidden);
END $$;
CREATE MATERIALIZED VIEW hidden_copy AS SELECT * FROM hidden;
SELECT (SELECT count(*) FROM hidden_view) AS view, count_in_sql(), count_in_plpgsql(), (SELECT count(*) FROM hidden_copy) AS copy;
COPY (SELECT count(*) FROM hidden) TO STDOUT;
DROP MATERIALIZED VIEW hidden_copy;

-- A parallel plan.
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
ALTER TABLE hidden SET (parallel_workers = 2);
SELECT found('Gather', 'SELECT value FROM hidden');
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- UPDATE, DELETE and MERGE skip expired rows.
UPDATE hidden SET value = 'w' WHERE key LIKE 'dead %';
DELETE FROM hidden WHERE key IN ('dead 1', 'live 1') RETURNING key;
MERGE INTO hidden AS h USING (VALUES ('dead 2'), ('live 2')) AS s (key) ON h.key = s.key WHEN MATCHED THEN DELETE;
BEGIN;
DECLARE c CURSOR FOR SELECT key FROM hidden WHERE key = 'live 3';
INSERT INTO hidden VALUES ('soon', 'v', clock_timestamp() + interval '1 second');
DECLARE d CURSOR FOR SELECT key FROM hidden WHERE key = 'soon';
FETCH c;
FETCH d;
SELECT pg_sleep(1.01);
UPDATE hidden SET value = 'x' WHERE CURRENT OF d RETURNING key;
DELETE FROM hidden WHERE CURRENT OF d RETURNING key;
DELETE FROM hidden WHERE CURRENT OF c RETURNING key;
ROLLBACK;
SELECT count(*) FROM hidden;

-- With pgcache.show_expired a session sees expired rows, even through plans that it has kept.
SET plan_cache_mode = force_generic_plan;
PREPARE kept AS SELECT count(*) FROM hidden WHERE key > $1;
EXECUTE kept('a');
SELECT count_in_plpgsql();
SET pgcache.show_expired = on;
EXECUTE kept('a');
SELECT count_in_plpgsql();
RESET pgcache.show_expired;
EXECUTE kept('a');
-- Kept plans are replaced when a table becomes a cache, and when it stops being one.
PREPARE other AS SELECT count(*) FROM plain;
EXECUTE other;
CREATE TRIGGER pgcache_record AFTER INSERT OR UPDATE OR DELETE ON plain FOR EACH ROW EXECUTE FUNCTION pgcache.record();
EXECUTE other;
DROP TRIGGER pgcache_record ON plain;
EXECUTE other;
RESET plan_cache_mode;

-- EXPLAIN shows the condition for caches, and for no other table.
EXPLAIN (COSTS OFF) SELECT * FROM hidden_other;
EXPLAIN (COSTS OFF) SELECT * FROM plain;
EXPLAIN (COSTS OFF) SELECT p.value FROM plain AS p LEFT JOIN hidden_other AS h USING (key);

-- Estimates: the live rows if statistics exist, otherwise all rows; a histogram that lies in the past is not trusted.
CREATE FUNCTION estimate(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
SELECT estimate('SELECT * FROM hidden_other') BETWEEN 450 AND 550 AS half;
UPDATE hidden_other AS pgcache_c SET expires_at = clock_timestamp() - interval '1 s';
ANALYZE hidden_other;
SELECT estimate('SELECT * FROM hidden_other') BETWEEN 200 AND 300 AS quarter;
SELECT cache_create('hidden_new');
INSERT INTO hidden_new SELECT n FROM generate_series(1, 1000) AS n;
SELECT estimate('SELECT * FROM hidden_new') = estimate('SELECT * FROM hidden_new AS pgcache_c') AS alike;

-- The function pgcache.live.
SELECT pgcache.live(NULL), pgcache.live('infinity'), pgcache.live('-infinity'), pgcache.live(clock_timestamp() + interval '1 min'), pgcache.live(now());
SELECT provolatile, proparallel, proacl::text LIKE '%=X/%' AS for_all FROM pg_proc WHERE oid = 'pgcache.live'::regproc;

DROP TABLE hidden, hidden_other, hidden_new, plain CASCADE;
DROP FUNCTION count_in_sql, count_in_plpgsql, found, plan_of, estimate;
DROP PROCEDURE fill, look;
