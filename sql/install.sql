-- The extension installs, and its catalog entries say what the reference says.
SET client_min_messages = warning; -- a server without preload has something to say
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

-- No overloads: a driver that sends untyped parameters always finds one function.
SELECT proname, count(*) FROM functions WHERE proname <> 'depends' GROUP BY proname HAVING count(*) > 1;

-- Nothing is STRICT but what nodes of Citus call, nothing is SECURITY DEFINER, everything has a comment.
SELECT proname FROM functions WHERE proisstrict OR prosecdef OR obj_description(oid, 'pg_proc') IS NULL;

-- Whatever looks at entries is VOLATILE; only pure arithmetic is not.
SELECT proname FROM functions WHERE provolatile <> 'v' ORDER BY proname;

-- Reads are parallel restricted, writes are parallel unsafe, nothing that sees entries is safe.
SELECT proparallel, array_agg(proname ORDER BY proname COLLATE "C")
  FROM functions GROUP BY proparallel ORDER BY proparallel;

-- The default of `cache` is pgcache.main, and it is the last argument of all that work on entries.
SELECT f.proname
  FROM functions f JOIN pg_proc p ON p.oid = f.oid
 WHERE f.schema = 'public'::regnamespace
   AND pg_get_function_arguments(f.oid) !~ 'cache regclass DEFAULT ''pgcache.main''::regclass(, OUT .*)?$'
 ORDER BY f.proname COLLATE "C";

-- Schema pgcache: usable by all, and nothing else granted in it but reading the view.
SELECT n.nspname, has_schema_privilege('public', n.oid, 'USAGE') AS usage, has_schema_privilege('public', n.oid, 'CREATE') AS "create"
  FROM pg_namespace n WHERE nspname = 'pgcache';
SELECT c.oid::regclass, p.privilege
  FROM pg_class c, unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER']) AS p (privilege)
 WHERE c.relnamespace = 'pgcache'::regnamespace AND c.relkind IN ('r', 'v')
   AND has_table_privilege('public', c.oid, p.privilege)
 ORDER BY 1, 2;

-- The default cache: unlogged, no default ttl.
SELECT cache, storage, value_type, ttl, max_entries, grace, negative_ttl, ttl_jitter, early_refresh FROM pgcache.caches;
SELECT relkind, relpersistence FROM pg_class WHERE oid = 'pgcache.main'::regclass;
SELECT a.attname, format_type(a.atttypid, a.atttypmod), co.collname, a.attnotnull
  FROM pg_attribute a LEFT JOIN pg_collation co ON co.oid = a.attcollation
 WHERE a.attrelid = 'pgcache.main'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'pgcache.main'::regclass AND contype = 'p';
SELECT cache_set('greeting', 'hello');
SELECT cache_get('greeting'), (SELECT value FROM pgcache.main WHERE key = 'greeting');
SELECT cache_delete('greeting');

-- It belongs to the extension: neither way of dropping it works.
\set VERBOSITY sqlstate
SELECT cache_drop('pgcache.main');
DROP TABLE pgcache.main;
\set VERBOSITY default

-- For the other tests: what a statement raises, independent of line numbers and contexts.
CREATE FUNCTION error_of(statement text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
