-- From pgcache 0.2.0 to 0.3.0: expiry by a worker, one refresh at a time, dependencies, notifications.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.3.0'" to load this file. \quit

-- Expiry and bounded space -----------------------------------------------------------------------

COMMENT ON FUNCTION @extschema@.cache_expire(regclass, integer) IS
    'removes up to max_rows expired rows of one cache, or of all that the caller may delete from, then rows beyond max_entries; returns how many had expired';

-- What sweeps leave behind: nulls without preload.
CREATE FUNCTION pgcache.sweep_figures(
    OUT cache oid,
    OUT trimmed bigint,
    OUT last_sweep timestamptz,
    OUT sweep_lag interval,
    OUT waiting bigint
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'sweep_figures_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.sweep_figures() IS
    'figures of sweeps behind pgcache.stats';
REVOKE ALL ON FUNCTION pgcache.sweep_figures() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.sweep_figures() TO pg_monitor;

CREATE OR REPLACE VIEW pgcache.stats AS
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
           COALESCE(s.hot_bytes, 0) AS hot_bytes,
           COALESCE(w.trimmed, 0) AS trimmed,
           w.last_sweep,
           w.sweep_lag,
           w.waiting,
           -- 0 for a view; then the entries lie in the tier.
           COALESCE(NULLIF(pg_catalog.pg_total_relation_size(a.cache), 0), s.hot_bytes, 0) AS bytes
      FROM pgcache.all_caches AS a
      LEFT JOIN pgcache.figures() AS s ON s.cache OPERATOR(pg_catalog.=) a.cache
      LEFT JOIN pgcache.sweep_figures() AS w ON w.cache OPERATOR(pg_catalog.=) a.cache;
COMMENT ON VIEW pgcache.stats IS
    'figures of each cache of this database since the server started or pgcache.reset_stats(), what its sweeps left, and its bytes now';

CREATE FUNCTION pgcache.table_path_taken(
    OUT direct bigint,
    OUT plan bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'table_path_taken_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.table_path_taken() IS
    'how often this session has gone to a table by key directly, and how often by a kept plan; pgcache.table_path chooses';
