-- From pgcache 0.3.0 to 0.4.0.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.4.0'" to load this file. \quit

-- What plain SQL sees of a cache: the planner puts pgcache.live(expires_at) on every scan of one ------

CREATE FUNCTION pgcache.live_support(internal) RETURNS internal
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
