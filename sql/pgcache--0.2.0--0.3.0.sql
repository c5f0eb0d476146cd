-- From pgcache 0.2.0 to 0.3.0: expiry by a worker, one refresh at a time, dependencies, notifications.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.3.0'" to load this file. \quit

-- Invalidation and limits ------------------------------------------------------------------------

-- Where a dependency is kept: triggers on the source have the condition
-- "true OR pgcache.depends('cache'::regclass, key)", which is never evaluated. Postgres itself follows
-- renames through it, guards what it needs, copies it to partitions, dumps and restores it.
CREATE FUNCTION pgcache.depends(cache regclass, key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN true;
COMMENT ON FUNCTION pgcache.depends(regclass, text) IS
    'names the cache and the key in the condition of a dependency''s trigger';

CREATE FUNCTION pgcache.invalidate() RETURNS trigger
    AS 'MODULE_PATHNAME', 'invalidate_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.invalidate() IS
    'row trigger of a table on which a cache depends, made by cache_depend()';

CREATE FUNCTION pgcache.invalidate_all() RETURNS trigger
    AS 'MODULE_PATHNAME', 'invalidate_all_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.invalidate_all() IS
    'truncate trigger of a table on which a cache depends, made by cache_depend()';

CREATE FUNCTION cache_depend(
    source regclass,
    key_expression text,
    cache regclass
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_depend_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_depend(regclass, text, regclass) IS
    'when a row of source changes and commits, the entry whose key is key_expression over the old and the new row is gone with that commit';

CREATE FUNCTION cache_undepend(source regclass, cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_undepend_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_undepend(regclass, regclass) IS
    'removes all dependencies of a cache on a table';

CREATE FUNCTION cache_watch(cache regclass) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_watch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_watch(regclass) IS
    'turns notifications of changes on; returns the channel for LISTEN';

CREATE FUNCTION cache_unwatch(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_unwatch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_unwatch(regclass) IS
    'turns notifications of changes off';

CREATE FUNCTION cache_rate_limit(
    key text,
    max_hits bigint,
    per interval,
    cache regclass DEFAULT 'pgcache.main',
    OUT allowed boolean,
    OUT remaining bigint,
    OUT retry_after interval
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_rate_limit_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_rate_limit(text, bigint, interval, regclass) IS
    'counts a hit: whether this fixed window lets it through, how many more it would, and how long to wait; use it in FROM';

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
-- One refresh at a time ---------------------------------------------------------------------------

CREATE FUNCTION @extschema@.cache_fetch(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_fetch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_fetch(text, text, interval, regclass) IS
    'the live value; else runs loader, one query for one value with the key as $1, stores and returns it; of many callers one loads';

CREATE FUNCTION @extschema@.cache_fetch_json(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'cache_fetch_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_fetch_json(text, text, interval, regclass) IS
    'cache_fetch() as jsonb';

CREATE FUNCTION @extschema@.cache_lease(
    key text,
    wait interval DEFAULT '0',
    cache regclass DEFAULT 'pgcache.main',
    OUT value text,
    OUT state text,
    OUT lease bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_lease_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_lease(text, interval, regclass) IS
    'for values computed outside of the database; state: hit, stale, win (compute it, then cache_set_leased), busy; use it in FROM';

CREATE FUNCTION @extschema@.cache_set_leased(
    key text,
    value text,
    lease bigint,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_set_leased_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_set_leased(text, text, bigint, interval, regclass) IS
    'stores only if the lease is still good: not expired, and the key not changed since; says whether it did';

CREATE FUNCTION @extschema@.cache_release(
    key text,
    lease bigint,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_release_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_release(text, bigint, regclass) IS
    'gives a lease up, so that the next caller wins; says whether it was still good';

CREATE FUNCTION @extschema@.cache_tune(
    cache regclass,
    negative_ttl interval DEFAULT NULL,
    ttl_jitter double precision DEFAULT NULL,
    early_refresh double precision DEFAULT NULL
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_tune_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_tune(regclass, interval, double precision, double precision) IS
    'changes how a cache is refreshed; NULL leaves as is; cache_forever() removes the ttl of negative entries, 0 the others';

CREATE FUNCTION pgcache.refresh_settings(
    cache regclass,
    OUT negative_ttl interval,
    OUT ttl_jitter double precision,
    OUT early_refresh double precision
) RETURNS record
    AS 'MODULE_PATHNAME', 'refresh_settings_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.refresh_settings(regclass) IS
    'the columns of pgcache.caches that cache_tune() sets';

CREATE OR REPLACE VIEW pgcache.caches AS
    SELECT a.cache::pg_catalog.regclass AS cache,
           s.storage,
           s.value_type,
           s.ttl,
           s.max_entries,
           s.grace,
           r.negative_ttl,
           r.ttl_jitter,
           r.early_refresh
      FROM pgcache.all_caches AS a
     CROSS JOIN LATERAL pgcache.cache_settings(a.cache) AS s
     CROSS JOIN LATERAL pgcache.refresh_settings(a.cache) AS r
     WHERE pg_catalog.has_table_privilege(a.cache, 'SELECT');

CREATE FUNCTION pgcache.table_path_taken(
    OUT direct bigint,
    OUT plan bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'table_path_taken_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.table_path_taken() IS
    'how often this session has gone to a table by key directly, and how often by a kept plan; pgcache.table_path chooses';
