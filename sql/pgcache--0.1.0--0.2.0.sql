-- From pgcache 0.1.0 to 0.2.0: the hot tier and memory caches.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.2.0'" to load this file. \quit

COMMENT ON FUNCTION @extschema@.cache_create(text, interval, text, regtype, bigint, interval, boolean) IS
    'makes a cache, owned by the caller; storage: unlogged, logged or memory; value_type: text, jsonb or bytea';

-- A memory cache: a view over its live entries ----------------------------------------------------

CREATE FUNCTION pgcache.memory_entries(settings text) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'memory_entries_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 1000;
COMMENT ON FUNCTION pgcache.memory_entries(text) IS
    'the live entries of the memory cache whose view has these settings; needs SELECT on that view';

-- Every relation that is a cache: tables by their trigger, memory caches by their view.
CREATE VIEW pgcache.all_caches AS
    SELECT t.tgrelid AS cache
      FROM pg_catalog.pg_trigger AS t
     WHERE t.tgfoid OPERATOR(pg_catalog.=) 'pgcache.record'::pg_catalog.regproc
    UNION
    SELECT r.ev_class AS cache
      FROM pg_catalog.pg_depend AS d
      JOIN pg_catalog.pg_rewrite AS r ON r.oid OPERATOR(pg_catalog.=) d.objid
     WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass
       AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
       AND d.refobjid OPERATOR(pg_catalog.=) (
               SELECT p.oid
                 FROM pg_catalog.pg_proc AS p
                 JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
                WHERE n.nspname OPERATOR(pg_catalog.=) 'pgcache'
                  AND p.proname OPERATOR(pg_catalog.=) 'memory_entries');
COMMENT ON VIEW pgcache.all_caches IS
    'the oids of all caches of this database';
GRANT SELECT ON pgcache.all_caches TO PUBLIC;

CREATE OR REPLACE VIEW pgcache.caches AS
    SELECT a.cache::pg_catalog.regclass AS cache,
           s.storage,
           s.value_type,
           s.ttl,
           s.max_entries,
           s.grace
      FROM pgcache.all_caches AS a
     CROSS JOIN LATERAL pgcache.cache_settings(a.cache) AS s
     WHERE pg_catalog.has_table_privilege(a.cache, 'SELECT');

-- The hot tier: figures for monitoring, and its check ---------------------------------------------

CREATE FUNCTION pgcache.figures(
    OUT cache oid,
    OUT hot_hits bigint,
    OUT table_hits bigint,
    OUT misses bigint,
    OUT sets bigint,
    OUT deletes bigint,
    OUT expired bigint,
    OUT evicted bigint,
    OUT invalidated bigint,
    OUT hot_entries bigint,
    OUT hot_bytes bigint
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'figures_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.figures() IS
    'figures behind pgcache.stats';

CREATE VIEW pgcache.stats AS
    SELECT a.cache::pg_catalog.regclass AS cache,
           COALESCE(s.hot_hits, 0) AS hot_hits,
           COALESCE(s.table_hits, 0) AS table_hits,
           COALESCE(s.misses, 0) AS misses,
           COALESCE(s.sets, 0) AS sets,
           COALESCE(s.deletes, 0) AS deletes,
           COALESCE(s.expired, 0) AS expired,
           COALESCE(s.evicted, 0) AS evicted,
           COALESCE(s.invalidated, 0) AS invalidated,
           COALESCE(s.hot_entries, 0) AS hot_entries,
           COALESCE(s.hot_bytes, 0) AS hot_bytes
      FROM pgcache.all_caches AS a
      LEFT JOIN pgcache.figures() AS s ON s.cache OPERATOR(pg_catalog.=) a.cache;
COMMENT ON VIEW pgcache.stats IS
    'figures of each cache of this database since the server started or pgcache.reset_stats()';

CREATE FUNCTION pgcache.tier_figures(
    OUT size bigint,
    OUT used bigint,
    OUT entries bigint,
    OUT evictions bigint,
    OUT rejected bigint,
    OUT lock_waits bigint,
    OUT bookkeeping bigint,
    OUT holes bigint,
    OUT free bigint,
    OUT pending bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'tier_figures_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.tier_figures() IS
    'figures behind pgcache.hot_tier';

CREATE VIEW pgcache.hot_tier AS
    SELECT * FROM pgcache.tier_figures();
COMMENT ON VIEW pgcache.hot_tier IS
    'the hot tier of this server: bytes (size, used, bookkeeping, holes, free) and counts (entries, evictions, rejected, lock_waits, pending)';

CREATE FUNCTION pgcache.reset_stats(cache regclass DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'reset_stats_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.reset_stats(regclass) IS
    'sets the figures of one cache, or of all in this database and of the tier, back to 0';

CREATE FUNCTION pgcache.verify(cache regclass) RETURNS TABLE (key text, hot_value text, table_value text)
    AS 'MODULE_PATHNAME', 'verify_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.verify(regclass) IS
    'copies in the hot tier that differ from their rows: none, or pgcache has a defect';

-- Keys never appear in figures, but who reads what how often is not everybody's business.
REVOKE ALL ON FUNCTION pgcache.figures(), pgcache.tier_figures(), pgcache.reset_stats(regclass)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.figures(), pgcache.tier_figures() TO pg_monitor;
GRANT SELECT ON pgcache.stats, pgcache.hot_tier TO pg_monitor;
