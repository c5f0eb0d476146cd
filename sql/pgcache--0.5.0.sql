-- pgcache 0.5.0: a cache that lives in Postgres
--
-- Every SQL function, grouped as in docs/reference.md. The cache_* functions go to the
-- schema that CREATE EXTENSION was told (else the first of search_path); everything internal lies
-- in schema pgcache. Reads are PARALLEL RESTRICTED: a worker process could not see what its own
-- session has written a moment ago.

\echo Use "CREATE EXTENSION pgcache" to load this file. \quit

CREATE SCHEMA pgcache;
GRANT USAGE ON SCHEMA pgcache TO PUBLIC;

-- What makes a table a cache: its row trigger, whose arguments are the settings ------------------

CREATE FUNCTION pgcache.record() RETURNS trigger
    AS 'MODULE_PATHNAME', 'record_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.record() IS
    'row trigger of every table cache; its arguments are the cache''s settings, changed by cache_alter()';

-- Names the columns of an attached table: BEFORE UPDATE OF key, value, deadline, and never fires.
CREATE FUNCTION pgcache.columns() RETURNS trigger
    AS 'MODULE_PATHNAME', 'columns_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.columns() IS
    'disabled trigger by which cache_attach() notes the columns of a table';

CREATE FUNCTION pgcache.record_truncate() RETURNS trigger
    AS 'MODULE_PATHNAME', 'record_truncate_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.record_truncate() IS
    'truncate trigger of every table cache';

CREATE FUNCTION pgcache.counter_sum(value text, delta bigint) RETURNS text
    AS 'MODULE_PATHNAME', 'counter_sum_wrapper'
    LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgcache.counter_sum(text, bigint) IS
    'the sum behind cache_incr(); 22P02 when value is no decimal integer, 22003 on overflow';

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

CREATE FUNCTION pgcache.live_unix(deadline bigint, per_second integer) RETURNS boolean
    AS 'MODULE_PATHNAME', 'live_unix_wrapper'
    LANGUAGE C STABLE PARALLEL SAFE
    SUPPORT pgcache.live_support;
COMMENT ON FUNCTION pgcache.live_unix(bigint, integer) IS
    'whether plain SQL sees a row whose deadline is this Unix time, with so many units a second; zero and less are never, as NULL is';
GRANT EXECUTE ON FUNCTION pgcache.live_unix(bigint, integer) TO PUBLIC;

CREATE FUNCTION pgcache.renew(key text, cache regclass, former text) RETURNS text
    AS 'MODULE_PATHNAME', 'renew_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.renew(text, regclass, text) IS
    'the key; where the planner has put it into a statement that writes this key, the expired row under it goes first, unless it is the key that the row has had';
GRANT EXECUTE ON FUNCTION pgcache.renew(text, regclass, text) TO PUBLIC;

CREATE FUNCTION pgcache.renew_copied(key text, cache regclass) RETURNS boolean
    AS 'MODULE_PATHNAME', 'renew_copied_wrapper'
    LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.renew_copied(text, regclass) IS
    'true; where we have put it at the end of the condition of COPY, the expired row under this key goes first';
GRANT EXECUTE ON FUNCTION pgcache.renew_copied(text, regclass) TO PUBLIC;

-- Looks before each row of a cache that is a partition of a plain table.
CREATE FUNCTION pgcache.renew_row() RETURNS trigger
    AS 'MODULE_PATHNAME', 'renew_row_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.renew_row() IS
    'row trigger of a cache that is a partition of a table that is none: the expired row under the key that is written goes first';

-- A memory cache: a view over its live entries ----------------------------------------------------

CREATE FUNCTION pgcache.memory_entries(settings text) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'memory_entries_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 1000;
COMMENT ON FUNCTION pgcache.memory_entries(text) IS
    'the live entries of the memory cache whose view has these settings; needs SELECT on that view';

-- Caches as such ---------------------------------------------------------------------------------

CREATE FUNCTION cache_forever() RETURNS interval
    AS 'MODULE_PATHNAME', 'cache_forever_wrapper'
    LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION cache_forever() IS
    'the ttl that means no expiry';

CREATE FUNCTION cache_create(
    name text,
    ttl interval DEFAULT NULL,
    storage text DEFAULT 'unlogged',
    value_type regtype DEFAULT 'text',
    max_entries bigint DEFAULT NULL,
    grace interval DEFAULT NULL,
    if_not_exists boolean DEFAULT false
) RETURNS regclass
    AS 'MODULE_PATHNAME', 'cache_create_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_create(text, interval, text, regtype, bigint, interval, boolean) IS
    'makes a cache, owned by the caller; storage: unlogged, logged or memory; value_type: text, jsonb or bytea';

CREATE FUNCTION cache_alter(
    cache regclass,
    ttl interval DEFAULT NULL,
    max_entries bigint DEFAULT NULL,
    grace interval DEFAULT NULL
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_alter_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_alter(regclass, interval, bigint, interval) IS
    'changes settings of a cache; NULL leaves as is; cache_forever(), 0 and an interval of 0 remove the default ttl, the limit, the grace';

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

CREATE FUNCTION cache_drop(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_drop_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_drop(regclass) IS
    'drops a cache with its entries; DROP TABLE does the same';

CREATE FUNCTION cache_clear(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_clear_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_clear(regclass) IS
    'removes all entries of a cache, like TRUNCATE and with its lock';

-- The cache that is used when none is named ------------------------------------------------------

-- It comes here because the functions below name it in their defaults. Nothing is granted on it.
-- A dump brings back its entries; its settings are those of this file. Every argument is given with its
-- type: whoever may create functions in that schema could have put a cache_create(text) beside this one.
SELECT @extschema@.cache_create('pgcache.main'::pg_catalog.text, NULL::pg_catalog.interval, 'unlogged'::pg_catalog.text,
       'pg_catalog.text'::pg_catalog.regtype, NULL::pg_catalog.int8, NULL::pg_catalog.interval, false);
SELECT pg_catalog.pg_extension_config_dump('pgcache.main', '');

-- Writing ----------------------------------------------------------------------------------------

CREATE FUNCTION cache_set(
    key text,
    value text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_set_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set(text, text, interval, regclass) IS
    'inserts or overwrites an entry, deadline included; a NULL value makes a negative entry';

CREATE FUNCTION cache_set_json(
    key text,
    value jsonb,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_set_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_json(text, jsonb, interval, regclass) IS
    'cache_set() for a jsonb value';

CREATE FUNCTION cache_set_bytes(
    key text,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_set_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_bytes(text, bytea, interval, regclass) IS
    'cache_set() for a bytea value';

CREATE FUNCTION cache_add(
    key text,
    value text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_add_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_add(text, text, interval, regclass) IS
    'stores only if no live entry is there; says whether it did';

CREATE FUNCTION cache_add_bytes(
    key text,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_add_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_add_bytes(text, bytea, interval, regclass) IS
    'cache_add() for a bytea value';

CREATE FUNCTION cache_replace(
    key text,
    value text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_replace_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_replace(text, text, interval, regclass) IS
    'stores only if a live entry is there; says whether it did';

CREATE FUNCTION cache_replace_bytes(
    key text,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_replace_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_replace_bytes(text, bytea, interval, regclass) IS
    'cache_replace() for a bytea value';

CREATE FUNCTION cache_cas(
    key text,
    expected text,
    value text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_cas_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_cas(text, text, text, interval, regclass) IS
    'compare and set: overwrites only if the live value equals expected; NULL equals an absent or negative entry';

CREATE FUNCTION cache_cas_bytes(
    key text,
    expected bytea,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_cas_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_cas_bytes(text, bytea, bytea, interval, regclass) IS
    'cache_cas() for bytea values';

CREATE FUNCTION cache_incr(
    key text,
    delta bigint DEFAULT 1,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_incr_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_incr(text, bigint, interval, regclass) IS
    'adds to a counter and returns the sum; ttl counts only when the entry is created';

CREATE FUNCTION cache_incr_existing(
    key text,
    delta bigint DEFAULT 1,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_incr_existing_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_incr_existing(text, bigint, regclass) IS
    'adds to a counter that is there and returns the sum; NULL if there is no live entry, and none is made';

CREATE FUNCTION cache_touch(
    key text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_touch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_touch(text, interval, regclass) IS
    'gives a live entry a new deadline; says whether there was one';

CREATE FUNCTION cache_persist(key text, cache regclass DEFAULT 'pgcache.main') RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_persist_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_persist(text, regclass) IS
    'takes away a live entry''s deadline; says whether there was an entry';

-- Reading ----------------------------------------------------------------------------------------

CREATE FUNCTION cache_get(key text, cache regclass DEFAULT 'pgcache.main') RETURNS text
    AS 'MODULE_PATHNAME', 'cache_get_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_get(text, regclass) IS
    'the live value; NULL on a miss and for a negative entry';

CREATE FUNCTION cache_get_json(key text, cache regclass DEFAULT 'pgcache.main') RETURNS jsonb
    AS 'MODULE_PATHNAME', 'cache_get_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_get_json(text, regclass) IS
    'cache_get() as jsonb';

CREATE FUNCTION cache_get_bytes(key text, cache regclass DEFAULT 'pgcache.main') RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_get_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_get_bytes(text, regclass) IS
    'cache_get() as bytea';

CREATE FUNCTION cache_get_touch(
    key text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_get_touch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_get_touch(text, interval, regclass) IS
    'cache_get() that also gives the entry a new deadline (sliding expiry)';

CREATE FUNCTION cache_get_touch_bytes(
    key text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_get_touch_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_get_touch_bytes(text, interval, regclass) IS
    'cache_get_touch() as bytea';

CREATE FUNCTION cache_lookup(
    key text,
    cache regclass DEFAULT 'pgcache.main',
    OUT found boolean,
    OUT value text,
    OUT expires_at timestamptz
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_lookup_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_lookup(text, regclass) IS
    'always one row; tells a miss (found is false) from a negative entry (found, value is NULL); use it in FROM';

CREATE FUNCTION cache_lookup_bytes(
    key text,
    cache regclass DEFAULT 'pgcache.main',
    OUT found boolean,
    OUT value bytea,
    OUT expires_at timestamptz
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_lookup_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_lookup_bytes(text, regclass) IS
    'cache_lookup() as bytea';

CREATE FUNCTION cache_exists(key text, cache regclass DEFAULT 'pgcache.main') RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_exists_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_exists(text, regclass) IS
    'whether a live entry is there, negative ones included';

CREATE FUNCTION cache_ttl(key text, cache regclass DEFAULT 'pgcache.main') RETURNS interval
    AS 'MODULE_PATHNAME', 'cache_ttl_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_ttl(text, regclass) IS
    'time left; NULL for no expiry and for no entry';

CREATE FUNCTION cache_scan(
    prefix text DEFAULT '',
    after text DEFAULT NULL,
    max_rows integer DEFAULT 100,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS TABLE (key text, value text, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'cache_scan_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_scan(text, text, integer, regclass) IS
    'live entries in key order (collation C), a page at a time: pass the last key as after';

CREATE FUNCTION cache_scan_bytes(
    prefix text DEFAULT '',
    after text DEFAULT NULL,
    max_rows integer DEFAULT 100,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS TABLE (key text, value bytea, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'cache_scan_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_scan_bytes(text, text, integer, regclass) IS
    'cache_scan() as bytea';

CREATE FUNCTION cache_keys(
    prefix text DEFAULT '',
    after text DEFAULT NULL,
    max_rows integer DEFAULT 100,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS TABLE (key text)
    AS 'MODULE_PATHNAME', 'cache_keys_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_keys(text, text, integer, regclass) IS
    'live keys in order (collation C), a page at a time as in cache_scan(), without their values';

CREATE FUNCTION cache_count(cache regclass DEFAULT 'pgcache.main') RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_count_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_count(regclass) IS
    'how many live entries there are, negative ones included';

-- Where keys are spread over several servers (docs/scaling.md).
CREATE FUNCTION pgcache.node_of(cache regclass, key text, nodes integer DEFAULT NULL) RETURNS integer
    AS 'MODULE_PATHNAME', 'node_of_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.node_of(regclass, text, integer) IS
    'which of so many servers, from 0 on, has a key: the remainder of the hash partition that it falls into';

-- A cache over the nodes of Citus (docs/scaling.md).
CREATE FUNCTION cache_distribute(cache regclass, shard_count integer DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_distribute_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_distribute(regclass, integer) IS
    'spreads a table cache over the nodes of a Citus cluster; functions then work from every node';

-- What the nodes of Citus send each other. STRICT, because Citus looks up the node of a NULL key and crashes. It does what its caller may do by SQL, and the settings are those in which
-- a result is read as it was meant.
CREATE FUNCTION pgcache.at_key(key text, node bigint, function text, arguments text[]) RETURNS text[]
    AS 'MODULE_PATHNAME', 'at_key_wrapper'
    LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
    SET search_path TO pg_catalog, pg_temp
    SET DateStyle TO 'ISO, YMD'
    SET IntervalStyle TO 'postgres'
    SET TimeZone TO 'UTC'
    SET bytea_output TO 'hex';
COMMENT ON FUNCTION pgcache.at_key(text, bigint, text, text[]) IS
    'what the nodes of Citus send each other: a call of a function on a distributed cache';

-- Removing ---------------------------------------------------------------------------------------

CREATE FUNCTION cache_delete(key text, cache regclass DEFAULT 'pgcache.main') RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_delete_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete(text, regclass) IS
    'removes an entry; says whether a live one was there';

CREATE FUNCTION cache_delete_if(
    key text,
    expected text,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_delete_if_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_if(text, text, regclass) IS
    'removes an entry if its live value equals expected (unlock); NULL equals a negative entry';

CREATE FUNCTION cache_delete_if_bytes(
    key text,
    expected bytea,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_delete_if_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_if_bytes(text, bytea, regclass) IS
    'cache_delete_if() for a bytea value';

CREATE FUNCTION cache_delete_prefix(prefix text, cache regclass DEFAULT 'pgcache.main') RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_delete_prefix_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_prefix(text, regclass) IS
    'removes all entries whose key begins with prefix; returns how many were live';

CREATE FUNCTION cache_take(key text, cache regclass DEFAULT 'pgcache.main') RETURNS text
    AS 'MODULE_PATHNAME', 'cache_take_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_take(text, regclass) IS
    'removes an entry and returns its live value';

CREATE FUNCTION cache_take_bytes(key text, cache regclass DEFAULT 'pgcache.main') RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_take_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_take_bytes(text, regclass) IS
    'cache_take() as bytea';

-- Several at once --------------------------------------------------------------------------------

CREATE FUNCTION cache_get_many(keys text[], cache regclass DEFAULT 'pgcache.main') RETURNS TABLE (key text, value text)
    AS 'MODULE_PATHNAME', 'cache_get_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_get_many(text[], regclass) IS
    'one row for each requested key, in request order, value NULL for a miss';

CREATE FUNCTION cache_get_many_bytes(keys text[], cache regclass DEFAULT 'pgcache.main') RETURNS TABLE (key text, value bytea)
    AS 'MODULE_PATHNAME', 'cache_get_many_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_get_many_bytes(text[], regclass) IS
    'cache_get_many() as bytea';

CREATE FUNCTION cache_lookup_many(keys text[], cache regclass DEFAULT 'pgcache.main')
    RETURNS TABLE (key text, found boolean, value text, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'cache_lookup_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_lookup_many(text[], regclass) IS
    'one row for each requested key, in request order; tells a miss (found is false) from a negative entry (found, value is NULL)';

CREATE FUNCTION cache_lookup_many_bytes(keys text[], cache regclass DEFAULT 'pgcache.main')
    RETURNS TABLE (key text, found boolean, value bytea, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'cache_lookup_many_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_lookup_many_bytes(text[], regclass) IS
    'cache_lookup_many() as bytea';

CREATE FUNCTION cache_set_many(
    keys text[],
    vals text[],
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_set_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_many(text[], text[], interval, regclass) IS
    'cache_set() of several; of a key given twice the last value wins; returns the number of entries';

CREATE FUNCTION cache_set_many_bytes(
    keys text[],
    vals bytea[],
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_set_many_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_many_bytes(text[], bytea[], interval, regclass) IS
    'cache_set_many() for bytea values';

CREATE FUNCTION cache_delete_many(keys text[], cache regclass DEFAULT 'pgcache.main') RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_delete_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_many(text[], regclass) IS
    'removes several entries; returns how many were live';

-- One refresh at a time ---------------------------------------------------------------------------

CREATE FUNCTION cache_fetch(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_fetch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_fetch(text, text, interval, regclass) IS
    'the live value; else runs loader, one query for one value with the key as $1, stores and returns it; of many callers one loads';

CREATE FUNCTION cache_fetch_json(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'cache_fetch_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_fetch_json(text, text, interval, regclass) IS
    'cache_fetch() as jsonb';

CREATE FUNCTION cache_fetch_bytes(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_fetch_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_fetch_bytes(text, text, interval, regclass) IS
    'cache_fetch() as bytea';

CREATE FUNCTION cache_lease(
    key text,
    wait interval DEFAULT '0',
    cache regclass DEFAULT 'pgcache.main',
    OUT value text,
    OUT state text,
    OUT lease bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_lease_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_lease(text, interval, regclass) IS
    'for values computed outside of the database; state: hit, stale, win (compute it, then cache_set_leased), busy; use it in FROM';

CREATE FUNCTION cache_lease_bytes(
    key text,
    wait interval DEFAULT '0',
    cache regclass DEFAULT 'pgcache.main',
    OUT value bytea,
    OUT state text,
    OUT lease bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_lease_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_lease_bytes(text, interval, regclass) IS
    'cache_lease() with a bytea value; then cache_set_leased_bytes';

CREATE FUNCTION cache_set_leased(
    key text,
    value text,
    lease bigint,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_set_leased_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_leased(text, text, bigint, interval, regclass) IS
    'stores only if the lease is still good: not expired, and the key not changed since; says whether it did';

CREATE FUNCTION cache_set_leased_bytes(
    key text,
    value bytea,
    lease bigint,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_set_leased_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_leased_bytes(text, bytea, bigint, interval, regclass) IS
    'cache_set_leased() for a bytea value';

CREATE FUNCTION cache_release(
    key text,
    lease bigint,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_release_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_release(text, bigint, regclass) IS
    'gives a lease up, so that the next caller wins; says whether it was still good';

CREATE FUNCTION cache_tune(
    cache regclass,
    negative_ttl interval DEFAULT NULL,
    ttl_jitter double precision DEFAULT NULL,
    early_refresh double precision DEFAULT NULL
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_tune_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_tune(regclass, interval, double precision, double precision) IS
    'changes how a cache is refreshed; NULL leaves as is; cache_forever() removes the ttl of negative entries, 0 the others';

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

-- Expiry -----------------------------------------------------------------------------------------

CREATE FUNCTION cache_expire(cache regclass DEFAULT NULL, max_rows integer DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_expire_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_expire(regclass, integer) IS
    'removes up to max_rows expired rows of one cache, or of all that the caller may delete from, then rows beyond max_entries; returns how many had expired';

CREATE FUNCTION cache_schedule_expiry(schedule text DEFAULT '10 seconds') RETURNS text
    AS 'MODULE_PATHNAME', 'cache_schedule_expiry_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_schedule_expiry(text) IS
    'makes or updates the pg_cron job that expires this database''s caches; NULL removes it; says what it did';

-- What there is ----------------------------------------------------------------------------------

CREATE FUNCTION pgcache.cache_settings(
    cache regclass,
    OUT storage text,
    OUT value_type regtype,
    OUT ttl interval,
    OUT max_entries bigint,
    OUT grace interval
) RETURNS record
    AS 'MODULE_PATHNAME', 'cache_settings_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.cache_settings(regclass) IS
    'one row of pgcache.caches';

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

-- Every relation that is a cache: tables by their trigger, memory caches by their view.
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
    'gives the column expires_at of a table cache the DEFAULT that the cache''s ttl stands for, as cache_create() does, and the trigger that a partition of another table needs; for a cache that an older dump has brought back';

CREATE VIEW pgcache.all_caches AS
    SELECT t.tgrelid AS cache
      FROM pg_catalog.pg_trigger AS t
     WHERE t.tgfoid OPERATOR(pg_catalog.=) 'pgcache.record'::pg_catalog.regproc
       AND t.tgparentid OPERATOR(pg_catalog.=) 0
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

CREATE VIEW pgcache.caches AS
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
COMMENT ON VIEW pgcache.caches IS
    'every cache that the current user may SELECT from, with its settings';
GRANT SELECT ON pgcache.caches TO PUBLIC;

-- Locks say which caches a prepared transaction has changed: they are there without preload, too, and
-- after a restart, when a transaction is of no session (-1).
CREATE VIEW pgcache.prepared AS
    SELECT p.gid,
           l.objid::pg_catalog.regclass AS cache,
           p.owner,
           p.prepared,
           pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) p.prepared AS age,
           pg_catalog.bool_or(l.objsubid OPERATOR(pg_catalog.=) 2
                              OR l.virtualtransaction OPERATOR(pg_catalog.~~) '-1/%') AS whole_cache
      FROM pg_catalog.pg_prepared_xacts AS p
      JOIN pg_catalog.pg_locks AS t
        ON t.locktype OPERATOR(pg_catalog.=) 'transactionid'
       AND t.transactionid OPERATOR(pg_catalog.=) p.transaction
       AND t.pid IS NULL
       AND t.granted
      JOIN pg_catalog.pg_locks AS l
        ON l.virtualtransaction OPERATOR(pg_catalog.=) t.virtualtransaction
       AND l.pid IS NULL
       AND l.locktype OPERATOR(pg_catalog.=) 'object'
       AND l.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
     WHERE p.database OPERATOR(pg_catalog.=) pg_catalog.current_database()
     GROUP BY p.gid, l.objid, p.owner, p.prepared;
COMMENT ON VIEW pgcache.prepared IS
    'caches that prepared transactions have changed: of their keys, or of the whole cache, nothing is copied, leased or loaded for others until COMMIT PREPARED or ROLLBACK PREPARED';
GRANT SELECT ON pgcache.prepared TO PUBLIC;

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
           COALESCE(s.hot_bytes, 0) AS hot_bytes,
           COALESCE(w.trimmed, 0) AS trimmed,
           w.last_sweep,
           w.sweep_lag,
           w.waiting,
           -- Where there are partitions, theirs; 0 for a view: then the entries lie in the tier.
           COALESCE((SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(p.relid))::pg_catalog.int8
                       FROM pg_catalog.pg_partition_tree(a.cache) AS p),
                    NULLIF(pg_catalog.pg_total_relation_size(a.cache), 0), s.hot_bytes, 0) AS bytes
      FROM pgcache.all_caches AS a
      LEFT JOIN pgcache.figures() AS s ON s.cache OPERATOR(pg_catalog.=) a.cache
      LEFT JOIN pgcache.sweep_figures() AS w ON w.cache OPERATOR(pg_catalog.=) a.cache;
COMMENT ON VIEW pgcache.stats IS
    'figures of each cache of this database since the server started or pgcache.reset_stats(), what its sweeps left, and its bytes now';

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
    'sets the figures of one cache, or of all in this database, of the tier and of the Redis protocol, back to 0';

CREATE FUNCTION pgcache.verify(cache regclass) RETURNS TABLE (key text, hot_value text, table_value text)
    AS 'MODULE_PATHNAME', 'verify_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.verify(regclass) IS
    'copies in the hot tier that differ from their rows: none, or pgcache has a defect';

CREATE FUNCTION pgcache.table_path_taken(
    OUT direct bigint,
    OUT plan bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'table_path_taken_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.table_path_taken() IS
    'how often this session has gone to a table by key directly, and how often by a kept plan; pgcache.table_path chooses';

-- Keys never appear in figures, but who reads what how often is not everybody's business.
REVOKE ALL ON FUNCTION pgcache.figures(), pgcache.tier_figures(), pgcache.reset_stats(regclass)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.figures(), pgcache.tier_figures() TO pg_monitor;
GRANT SELECT ON pgcache.stats, pgcache.hot_tier TO pg_monitor;

-- The Redis protocol (docs/door.md) ----------------------------------------------------------------

CREATE FUNCTION pgcache.resp_clients_now() RETURNS TABLE (
    id bigint,
    pid integer,
    role oid,
    name text,
    library text,
    address text,
    connected_at timestamptz,
    last_request_at timestamptz,
    database integer,
    protocol integer,
    last_command text,
    commands bigint,
    in_transaction boolean,
    channels integer,
    unread_bytes bigint,
    unsent_bytes bigint
)
    AS 'MODULE_PATHNAME', 'resp_clients_now_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION pgcache.resp_clients_now() IS
    'clients behind pgcache.resp_clients: those of the caller''s roles, all for members of pg_monitor';
-- It shows nobody what is not theirs, whatever default privileges say.
GRANT EXECUTE ON FUNCTION pgcache.resp_clients_now() TO PUBLIC;

CREATE VIEW pgcache.resp_clients AS
    SELECT c.id, c.pid, c.role::pg_catalog.regrole AS role, c.name, c.library, c.address, c.connected_at,
           c.last_request_at, c.database, c.protocol, c.last_command, c.commands, c.in_transaction,
           c.channels, c.unread_bytes, c.unsent_bytes
      FROM pgcache.resp_clients_now() AS c;
COMMENT ON VIEW pgcache.resp_clients IS
    'clients of the Redis protocol: one''s own, all for members of pg_monitor; none where nothing listens';
GRANT SELECT ON pgcache.resp_clients TO PUBLIC;

CREATE FUNCTION pgcache.resp_kill(id bigint) RETURNS boolean
    AS 'MODULE_PATHNAME', 'resp_kill_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.resp_kill(bigint) IS
    'ends a client of the Redis protocol; false if there is none of this number';

CREATE FUNCTION pgcache.resp_figures() RETURNS TABLE (
    clients bigint,
    connections bigint,
    rejected bigint,
    cut_off bigint,
    killed bigint,
    commands bigint,
    batches bigint,
    largest_batch bigint,
    hits bigint,
    misses bigint,
    bytes_in bigint,
    bytes_out bigint,
    failed_authentications bigint,
    failed_handshakes bigint,
    questions bigint,
    queue_depth bigint,
    queue_full bigint,
    messages bigint,
    ring_overflows bigint,
    tracked_keys bigint,
    since timestamptz
)
    AS 'MODULE_PATHNAME', 'resp_figures_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 1;
COMMENT ON FUNCTION pgcache.resp_figures() IS
    'figures behind pgcache.resp_stats';

CREATE VIEW pgcache.resp_stats AS
    SELECT * FROM pgcache.resp_figures();
COMMENT ON VIEW pgcache.resp_stats IS
    'figures of the Redis protocol since the server started or they were set back; no row where nothing listens';

CREATE FUNCTION pgcache.publish(channel text, message text) RETURNS void
    AS 'MODULE_PATHNAME', 'publish_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.publish(text, text) IS
    'sends a message to the clients of the Redis protocol that read the channel, when the transaction commits';

-- Figures are not everybody's business; and programs trust what comes by a channel.
REVOKE ALL ON FUNCTION pgcache.resp_figures(), pgcache.publish(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.resp_figures() TO pg_monitor;
GRANT SELECT ON pgcache.resp_stats TO pg_monitor;

-- The cache of database 0 of the Redis protocol, unless pgcache.resp_caches names others. Nothing is
-- granted on it. It belongs to the extension, and what it holds is nobody's data: a dump has the grants
-- on it only.
SELECT @extschema@.cache_create('pgcache.resp'::pg_catalog.text, NULL::pg_catalog.interval, 'memory'::pg_catalog.text,
       'pg_catalog.bytea'::pg_catalog.regtype, NULL::pg_catalog.int8, NULL::pg_catalog.interval, false);

CREATE FUNCTION pgcache.tell_what_is_missing() RETURNS void
    AS 'MODULE_PATHNAME', 'tell_what_is_missing_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.tell_what_is_missing() IS
    'says in a NOTICE at the commit what this server lacks for all of pgcache, and the lines that change it; CREATE EXTENSION calls it';

-- It shows shared_preload_libraries, which not everybody may read.
REVOKE ALL ON FUNCTION pgcache.tell_what_is_missing() FROM PUBLIC;

SELECT pgcache.tell_what_is_missing();
