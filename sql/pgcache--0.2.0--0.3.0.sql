-- From pgcache 0.2.0 to 0.3.0: expiry by a worker, one refresh at a time, dependencies, notifications.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.3.0'" to load this file. \quit

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
