-- From pgcache 0.3.0 to 0.4.0.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.4.0'" to load this file. \quit

CREATE FUNCTION pgcache.tell_what_is_missing() RETURNS void
    AS 'MODULE_PATHNAME', 'tell_what_is_missing_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.tell_what_is_missing() IS
    'says in a NOTICE at the commit what this server lacks for all of pgcache, and the lines that change it; CREATE EXTENSION calls it';

-- It shows shared_preload_libraries, which not everybody may read.
REVOKE ALL ON FUNCTION pgcache.tell_what_is_missing() FROM PUBLIC;
