-- From pgcache 0.3.0 to 0.4.0.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.4.0'" to load this file. \quit

-- What plain SQL sees of a cache: the planner puts pgcache.live(expires_at) on every scan of one ------

CREATE FUNCTION pgcache.live_support(request internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'live_support_wrapper'
    LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgcache.live_support(internal) IS
    'tells the planner how many rows pgcache.live() leaves';

CREATE FUNCTION pgcache.live(expires_at timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'live_wrapper'
    LANGUAGE C STABLE PARALLEL SAFE
    SUPPORT pgcache.live_support;
COMMENT ON FUNCTION pgcache.live(timestamptz) IS
    'whether plain SQL sees a row with this deadline; reads the clock once for each scan; true for NULL, with pgcache.show_expired and for foreign keys';
-- Who reads a cache runs it, whatever default privileges say.
GRANT EXECUTE ON FUNCTION pgcache.live(timestamptz) TO PUBLIC;

CREATE FUNCTION pgcache.renew(key text, cache regclass) RETURNS text
    AS 'MODULE_PATHNAME', 'renew_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.renew(text, regclass) IS
    'the key; where the planner has put it into a statement that writes this key, the expired row under it goes first';
GRANT EXECUTE ON FUNCTION pgcache.renew(text, regclass) TO PUBLIC;

CREATE FUNCTION pgcache.hiding(
    cache regclass,
    OUT hides_expired boolean,
    OUT not_hidden_because text
) RETURNS record
    AS 'MODULE_PATHNAME', 'hiding_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.hiding(regclass) IS
    'whether plain SQL sees no expired row of a cache, and why it may; behind pgcache.caches';

CREATE FUNCTION pgcache.put_default(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'put_default_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.put_default(regclass) IS
    'gives the column expires_at of a table cache the DEFAULT that the cache''s ttl stands for, as cache_create() does; for a cache that an older dump has brought back';

CREATE OR REPLACE VIEW pgcache.caches AS
    SELECT a.cache::pg_catalog.regclass AS cache,
           s.storage,
           s.value_type,
           s.ttl,
           s.max_entries,
           s.grace,
           r.negative_ttl,
           r.ttl_jitter,
           r.early_refresh,
           h.hides_expired,
           h.not_hidden_because
      FROM pgcache.all_caches AS a
     CROSS JOIN LATERAL pgcache.cache_settings(a.cache) AS s
     CROSS JOIN LATERAL pgcache.refresh_settings(a.cache) AS r
     CROSS JOIN LATERAL pgcache.hiding(a.cache) AS h
     WHERE pg_catalog.has_table_privilege(a.cache, 'SELECT');

-- Caches that are there get the DEFAULT of new ones, without a rewrite. Each is locked for that. Not what others hold
-- as temporary tables.
SELECT pgcache.put_default(a.cache)
  FROM pgcache.all_caches AS a
  JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) a.cache
 WHERE c.relkind OPERATOR(pg_catalog.=) 'r' AND c.relpersistence OPERATOR(pg_catalog.<>) 't';
