-- From pgcache 0.2.0 to 0.3.0: expiry by a worker, one refresh at a time, dependencies, notifications.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.3.0'" to load this file. \quit

CREATE FUNCTION pgcache.table_path_taken(
    OUT direct bigint,
    OUT plan bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'table_path_taken_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.table_path_taken() IS
    'how often this session has gone to a table by key directly, and how often by a kept plan; pgcache.table_path chooses';
