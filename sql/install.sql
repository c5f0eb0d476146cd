-- The extension installs, and its catalog entries match the reference.
SET client_min_messages = warning; -- without preload the server raises a notice
CREATE EXTENSION pgcache;
RESET client_min_messages;

-- Names, argument order, defaults and results of every function.
SELECT p.proname || '(' || pg_get_function_arguments(p.oid) || ') -> ' || pg_get_function_result(p.oid) AS signature
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pgcache'
 WHERE p.pronamespace = 'public'::regnamespace
 ORDER BY p.proname COLLATE "C";

CREATE TEMP VIEW functions AS
SELECT p.oid, p.proname, p.pronamespace::regnamespace AS schema, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pgcache';

-- No function is overloaded, so a driver that sends untyped parameters always finds one.
SELECT proname, count(*) FROM functions WHERE proname <> 'depends' GROUP BY proname HAVING count(*) > 1;

-- Only functions that Citus nodes call are STRICT, none is SECURITY DEFINER, and each has a comment.
SELECT proname FROM functions WHERE proisstrict OR prosecdef OR obj_description(oid, 'pg_proc') IS NULL;

-- Functions that read entries are VOLATILE; only pure arithmetic is not.
SELECT proname FROM functions WHERE provolatile <> 'v' ORDER BY proname;

-- Reads are parallel restricted and writes parallel unsafe; no function that reads entries is parallel safe.
SELECT proparallel, array_agg(proname ORDER BY proname COLLATE "C")
  FROM functions GROUP BY proparallel ORDER BY proparallel;

-- `cache` is the last argument of all functions on entries and defaults to pgcache.main.
SELECT f.proname
  FROM functions f JOIN pg_proc p ON p.oid = f.oid
 WHERE f.schema = 'public'::regnamespace
   AND pg_get_function_arguments(f.oid) !~ 'cache regclass DEFAULT ''pgcache.main''::regclass(, OUT .*)?$'
 ORDER BY f.proname COLLATE "C";

-- All roles may use schema pgcache; the only other privilege of PUBLIC in it is SELECT on the views.
SELECT n.nspname, has_schema_privilege('public', n.oid, 'USAGE') AS usage, has_schema_privilege('public', n.oid, 'CREATE') AS "create"
  FROM pg_namespace n WHERE nspname = 'pgcache';
SELECT c.oid::regclass, p.privilege
  FROM pg_class c, unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER']) AS p (privilege)
 WHERE c.relnamespace = 'pgcache'::regnamespace AND c.relkind IN ('r', 'v')
   AND has_table_privilege('public', c.oid, p.privilege)
 ORDER BY 1, 2;

-- The default cache is unlogged and has no default ttl.
SELECT cache, storage, value_type, ttl, max_entries, grace, negative_ttl, ttl_jitter, early_refresh FROM pgcache.caches;
SELECT relkind, relpersistence FROM pg_class WHERE oid = 'pgcache.main'::regclass;
SELECT a.attname, format_type(a.atttypid, a.atttypmod), co.collname, a.attnotnull
  FROM pg_attribute a LEFT JOIN pg_collation co ON co.oid = a.attcollation
 WHERE a.attrelid = 'pgcache.main'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'pgcache.main'::regclass AND contype = 'p';
SELECT cache_set('greeting', 'hello');
SELECT cache_get('greeting'), (SELECT value FROM pgcache.main WHERE key = 'greeting');
SELECT cache_delete('greeting');

-- The default cache belongs to the extension, so neither cache_drop nor DROP TABLE removes it.
\set VERBOSITY sqlstate
SELECT cache_drop('pgcache.main');
DROP TABLE pgcache.main;
\set VERBOSITY default

-- For the other tests: returns the error of a statement without line numbers and contexts.
CREATE FUNCTION error_of(statement text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
