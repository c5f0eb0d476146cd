-- From pgcache 0.3.0 to 0.4.0.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.4.0'" to load this file. \quit

-- Names the columns of an attached table: BEFORE UPDATE OF key, value, deadline, and never fires.
CREATE FUNCTION pgcache.columns() RETURNS trigger
    AS 'MODULE_PATHNAME', 'columns_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.columns() IS
    'disabled trigger by which cache_attach() notes the columns of a table';

CREATE FUNCTION cache_attach(
    tab regclass,
    ttl interval DEFAULT NULL,
    key_column name DEFAULT 'key',
    value_column name DEFAULT 'value',
    expires_column name DEFAULT 'expires_at',
    max_entries bigint DEFAULT NULL,
    grace interval DEFAULT NULL,
    expires_unit text DEFAULT NULL
) RETURNS regclass
    AS 'MODULE_PATHNAME', 'cache_attach_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_attach(regclass, interval, name, name, name, bigint, interval, text) IS
    'makes a cache of a table that somebody else has made; expires_unit is s or ms where its deadlines are Unix times';

CREATE FUNCTION cache_detach(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_detach_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_detach(regclass) IS
    'makes a plain table of a cache again, with its rows, columns, indexes and privileges';
