-- pgcache 0.5.0: a cache that lives in Postgres
--
-- Every SQL function, grouped as in docs/reference.md. The cache_* functions go to the
-- schema that CREATE EXTENSION names (else the first of search_path); everything internal lies
-- in schema pgcache. Reads are PARALLEL RESTRICTED: a worker process could not see what its own
-- session has written a moment ago.

\echo Use "CREATE EXTENSION pgcache" to load this file. \quit

CREATE SCHEMA pgcache;
GRANT USAGE ON SCHEMA pgcache TO PUBLIC;

-- A table is a cache by its row trigger, whose arguments are the settings -------------------------

CREATE FUNCTION pgcache.record() RETURNS trigger
    AS 'MODULE_PATHNAME', 'record_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.record() IS
    'Tracks row changes as the row trigger of every table cache; its arguments are the settings of the cache, which cache_alter() changes.';

-- Names the columns of an attached table: BEFORE UPDATE OF key, value, deadline, and never fires.
CREATE FUNCTION pgcache.columns() RETURNS trigger
    AS 'MODULE_PATHNAME', 'columns_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.columns() IS
    'Stores the names of the columns of a table that cache_attach() made a cache, as a trigger that is disabled.';

CREATE FUNCTION pgcache.record_truncate() RETURNS trigger
    AS 'MODULE_PATHNAME', 'record_truncate_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.record_truncate() IS
    'Tracks TRUNCATE as the truncate trigger of every table cache.';

CREATE FUNCTION pgcache.counter_sum(value text, delta bigint) RETURNS text
    AS 'MODULE_PATHNAME', 'counter_sum_wrapper'
    LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgcache.counter_sum(text, bigint) IS
    'Computes the sum for cache_incr(), and raises 22P02 if value is not a decimal integer, and 22003 on overflow.';

-- What plain SQL sees of a cache: the planner puts pgcache.live(expires_at) on every scan of one ------

CREATE FUNCTION pgcache.live_support(request internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'live_support_wrapper'
    LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgcache.live_support(internal) IS
    'Tells the planner how many rows pgcache.live() keeps.';

CREATE FUNCTION pgcache.live(expires_at timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'live_wrapper'
    LANGUAGE C STABLE PARALLEL SAFE
    SUPPORT pgcache.live_support;
COMMENT ON FUNCTION pgcache.live(timestamptz) IS
    'Returns whether plain SQL sees a row with this deadline; reads the clock once for each scan, and returns true for NULL, with pgcache.show_expired and for foreign keys.';
-- Every role that reads a cache runs it, so default privileges must not take it away.
GRANT EXECUTE ON FUNCTION pgcache.live(timestamptz) TO PUBLIC;

CREATE FUNCTION pgcache.live_unix(deadline bigint, per_second integer) RETURNS boolean
    AS 'MODULE_PATHNAME', 'live_unix_wrapper'
    LANGUAGE C STABLE PARALLEL SAFE
    SUPPORT pgcache.live_support;
COMMENT ON FUNCTION pgcache.live_unix(bigint, integer) IS
    'Returns whether plain SQL sees a row whose deadline is this Unix time, with that many units per second; zero and negative numbers mean no expiry, as NULL does.';
GRANT EXECUTE ON FUNCTION pgcache.live_unix(bigint, integer) TO PUBLIC;

CREATE FUNCTION pgcache.renew(key text, cache regclass, former text) RETURNS text
    AS 'MODULE_PATHNAME', 'renew_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.renew(text, regclass, text) IS
    'Returns the key; in a statement that writes this key, where the planner puts the call, first removes the expired row under the key, unless the written row had the key before.';
GRANT EXECUTE ON FUNCTION pgcache.renew(text, regclass, text) TO PUBLIC;

CREATE FUNCTION pgcache.renew_copied(key text, cache regclass) RETURNS boolean
    AS 'MODULE_PATHNAME', 'renew_copied_wrapper'
    LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.renew_copied(text, regclass) IS
    'Returns true; in the condition of a COPY, where pgcache puts the call, first removes the expired row under the key.';
GRANT EXECUTE ON FUNCTION pgcache.renew_copied(text, regclass) TO PUBLIC;

CREATE FUNCTION pgcache.copied_first(key text, copy integer, is_live boolean) RETURNS boolean
    AS 'MODULE_PATHNAME', 'copied_first_wrapper'
    LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.copied_first(text, integer, boolean) IS
    'Returns whether no expired row with this key came before in a COPY, where pgcache puts the call.';
GRANT EXECUTE ON FUNCTION pgcache.copied_first(text, integer, boolean) TO PUBLIC;

CREATE FUNCTION pgcache.copied_again(copied record, copy integer) RETURNS boolean
    AS 'MODULE_PATHNAME', 'copied_again_wrapper'
    LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.copied_again(record, integer) IS
    'Returns false; in the condition of a COPY, where pgcache puts the call, keeps the row, which is inserted when the COPY has ended.';
GRANT EXECUTE ON FUNCTION pgcache.copied_again(record, integer) TO PUBLIC;

-- Looks before each row of a cache that is a partition of a plain table.
CREATE FUNCTION pgcache.renew_row() RETURNS trigger
    AS 'MODULE_PATHNAME', 'renew_row_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.renew_row() IS
    'Removes the expired row under the key that is written, as the row trigger of a cache that is a partition of a table that is not a cache.';

-- A memory cache: a view over its live entries ----------------------------------------------------

CREATE FUNCTION pgcache.memory_entries_support(request internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'memory_entries_support_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.memory_entries_support(internal) IS
    'Tells the planner how many entries a memory cache has; Postgres calls it.';

CREATE FUNCTION pgcache.memory_entries(settings text) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'memory_entries_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 1000 SUPPORT pgcache.memory_entries_support;
COMMENT ON FUNCTION pgcache.memory_entries(text) IS
    'Returns the live entries of the memory cache whose view has these settings; needs SELECT on that view.';

-- Caches as such ---------------------------------------------------------------------------------

CREATE FUNCTION cache_forever() RETURNS interval
    AS 'MODULE_PATHNAME', 'cache_forever_wrapper'
    LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION cache_forever() IS
    'Returns the ttl that means no expiry.';

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
    'Creates a cache that the caller owns; storage is unlogged, logged or memory, and value_type is text, jsonb or bytea.';

CREATE FUNCTION cache_alter(
    cache regclass,
    ttl interval DEFAULT NULL,
    max_entries bigint DEFAULT NULL,
    grace interval DEFAULT NULL
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_alter_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_alter(regclass, interval, bigint, interval) IS
    'Changes settings of a cache; NULL keeps a setting, cache_forever() removes the default ttl, 0 removes the limit, and an interval of 0 removes the grace.';

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
    'Makes an existing table a cache; expires_unit is s or ms if its deadlines are Unix times.';

CREATE FUNCTION cache_detach(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_detach_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_detach(regclass) IS
    'Turns a cache back into a plain table with its rows, columns, indexes and privileges.';

CREATE FUNCTION cache_drop(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_drop_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_drop(regclass) IS
    'Drops a cache with its entries, as DROP TABLE or, for a memory cache, DROP VIEW does.';

CREATE FUNCTION cache_clear(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_clear_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_clear(regclass) IS
    'Removes all entries of a cache, like TRUNCATE and with its lock.';

-- The cache that is used when none is named ------------------------------------------------------

-- It comes here because the functions below name it in their defaults. Nothing is granted on it.
-- A dump brings back its entries; its settings are those of this file. Every argument is given with its
-- type: a role that may create functions in that schema could have put a cache_create(text) beside this one.
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
    'Inserts or overwrites an entry, including its deadline; a NULL value makes a negative entry.';

CREATE FUNCTION cache_set_json(
    key text,
    value jsonb,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_set_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_json(text, jsonb, interval, regclass) IS
    'Stores a jsonb value as cache_set() does.';

CREATE FUNCTION cache_set_bytes(
    key text,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_set_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_bytes(text, bytea, interval, regclass) IS
    'Stores a bytea value as cache_set() does.';

CREATE FUNCTION cache_add(
    key text,
    value text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_add_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_add(text, text, interval, regclass) IS
    'Stores a value only if the key has no live entry, and returns whether it did.';

CREATE FUNCTION cache_add_bytes(
    key text,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_add_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_add_bytes(text, bytea, interval, regclass) IS
    'Stores a bytea value as cache_add() does.';

CREATE FUNCTION cache_replace(
    key text,
    value text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_replace_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_replace(text, text, interval, regclass) IS
    'Stores a value only if the key has a live entry, and returns whether it did.';

CREATE FUNCTION cache_replace_bytes(
    key text,
    value bytea,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_replace_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_replace_bytes(text, bytea, interval, regclass) IS
    'Stores a bytea value as cache_replace() does.';

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
    'Overwrites an entry only if its live value equals expected (compare and set); NULL equals an absent or negative entry.';

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
    'Compares and overwrites bytea values as cache_cas() does.';

CREATE FUNCTION cache_incr(
    key text,
    delta bigint DEFAULT 1,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_incr_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_incr(text, bigint, interval, regclass) IS
    'Adds to a counter and returns the sum; ttl applies only if the call creates the entry.';

CREATE FUNCTION cache_incr_existing(
    key text,
    delta bigint DEFAULT 1,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_incr_existing_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_incr_existing(text, bigint, regclass) IS
    'Adds to an existing counter and returns the sum; returns NULL if there is no live entry, and creates none.';

CREATE FUNCTION cache_touch(
    key text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_touch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_touch(text, interval, regclass) IS
    'Gives a live entry a new deadline, and returns whether such an entry exists.';

CREATE FUNCTION cache_persist(key text, cache regclass DEFAULT 'pgcache.main') RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_persist_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_persist(text, regclass) IS
    'Removes the deadline of a live entry, and returns whether such an entry exists.';

-- Reading ----------------------------------------------------------------------------------------

CREATE FUNCTION cache_get(key text, cache regclass DEFAULT 'pgcache.main') RETURNS text
    AS 'MODULE_PATHNAME', 'cache_get_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_get(text, regclass) IS
    'Returns the live value, or NULL on a miss and for a negative entry.';

CREATE FUNCTION cache_get_json(key text, cache regclass DEFAULT 'pgcache.main') RETURNS jsonb
    AS 'MODULE_PATHNAME', 'cache_get_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_get_json(text, regclass) IS
    'Returns the result of cache_get() as jsonb.';

CREATE FUNCTION cache_get_bytes(key text, cache regclass DEFAULT 'pgcache.main') RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_get_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_get_bytes(text, regclass) IS
    'Returns the result of cache_get() as bytea.';

CREATE FUNCTION cache_get_touch(
    key text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_get_touch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_get_touch(text, interval, regclass) IS
    'Returns the result of cache_get() and also gives the entry a new deadline (sliding expiry).';

CREATE FUNCTION cache_get_touch_bytes(
    key text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_get_touch_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_get_touch_bytes(text, interval, regclass) IS
    'Returns the result of cache_get_touch() as bytea.';

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
    'Returns exactly one row, which distinguishes a miss (found is false) from a negative entry (found is true, value is NULL); use it in FROM.';

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
    'Returns the result of cache_lookup() as bytea.';

CREATE FUNCTION cache_exists(key text, cache regclass DEFAULT 'pgcache.main') RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_exists_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_exists(text, regclass) IS
    'Returns whether the key has a live entry, including a negative one.';

CREATE FUNCTION cache_ttl(key text, cache regclass DEFAULT 'pgcache.main') RETURNS interval
    AS 'MODULE_PATHNAME', 'cache_ttl_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_ttl(text, regclass) IS
    'Returns the time left until an entry expires, or NULL if it does not expire or does not exist.';

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
    'Returns live entries in key order (collation C), one page at a time: pass the last key as after.';

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
    'Returns the result of cache_scan() as bytea.';

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
    'Returns live keys in order (collation C) without their values, one page at a time as in cache_scan().';

CREATE FUNCTION cache_count(cache regclass DEFAULT 'pgcache.main') RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_count_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_count(regclass) IS
    'Returns the number of live entries, including negative ones.';

-- Where keys are spread over several servers (docs/scaling.md).
CREATE FUNCTION pgcache.node_of(cache regclass, key text, nodes integer DEFAULT NULL) RETURNS integer
    AS 'MODULE_PATHNAME', 'node_of_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.node_of(regclass, text, integer) IS
    'Returns which of so many servers, counted from 0, has a key: the remainder of the hash partition into which the key falls.';

-- A cache over the nodes of Citus (docs/scaling.md).
CREATE FUNCTION cache_distribute(cache regclass, shard_count integer DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_distribute_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_distribute(regclass, integer) IS
    'Spreads a table cache over the nodes of a Citus cluster; functions then work from every node.';

-- The nodes of Citus send each other these calls. STRICT, because Citus looks up the node of a NULL key and crashes. A
-- call does only what its caller may do by SQL. Its settings are those by which the sender reads the result.
CREATE FUNCTION pgcache.at_key(key text, node bigint, function text, arguments text[]) RETURNS text[]
    AS 'MODULE_PATHNAME', 'at_key_wrapper'
    LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
    SET search_path TO pg_catalog, pg_temp
    SET DateStyle TO 'ISO, YMD'
    SET IntervalStyle TO 'postgres'
    SET TimeZone TO 'UTC'
    SET bytea_output TO 'hex';
COMMENT ON FUNCTION pgcache.at_key(text, bigint, text, text[]) IS
    'Runs a call of a function on a distributed cache, as the nodes of Citus send it to each other.';

-- Removing ---------------------------------------------------------------------------------------

CREATE FUNCTION cache_delete(key text, cache regclass DEFAULT 'pgcache.main') RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_delete_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete(text, regclass) IS
    'Removes an entry, and returns whether it was live.';

CREATE FUNCTION cache_delete_if(
    key text,
    expected text,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_delete_if_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_if(text, text, regclass) IS
    'Removes an entry if its live value equals expected (unlock); NULL equals a negative entry.';

CREATE FUNCTION cache_delete_if_bytes(
    key text,
    expected bytea,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_delete_if_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_if_bytes(text, bytea, regclass) IS
    'Compares and removes a bytea value as cache_delete_if() does.';

CREATE FUNCTION cache_delete_prefix(prefix text, cache regclass DEFAULT 'pgcache.main') RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_delete_prefix_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_prefix(text, regclass) IS
    'Removes all entries whose key begins with prefix, and returns how many were live.';

CREATE FUNCTION cache_take(key text, cache regclass DEFAULT 'pgcache.main') RETURNS text
    AS 'MODULE_PATHNAME', 'cache_take_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_take(text, regclass) IS
    'Removes an entry and returns its live value.';

CREATE FUNCTION cache_take_bytes(key text, cache regclass DEFAULT 'pgcache.main') RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_take_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_take_bytes(text, regclass) IS
    'Removes an entry and returns its live value as bytea.';

-- Several at once --------------------------------------------------------------------------------

CREATE FUNCTION cache_get_many(keys text[], cache regclass DEFAULT 'pgcache.main') RETURNS TABLE (key text, value text)
    AS 'MODULE_PATHNAME', 'cache_get_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_get_many(text[], regclass) IS
    'Returns one row for each requested key, in request order, with a NULL value for a miss.';

CREATE FUNCTION cache_get_many_bytes(keys text[], cache regclass DEFAULT 'pgcache.main') RETURNS TABLE (key text, value bytea)
    AS 'MODULE_PATHNAME', 'cache_get_many_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_get_many_bytes(text[], regclass) IS
    'Returns the result of cache_get_many() as bytea.';

CREATE FUNCTION cache_lookup_many(keys text[], cache regclass DEFAULT 'pgcache.main')
    RETURNS TABLE (key text, found boolean, value text, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'cache_lookup_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_lookup_many(text[], regclass) IS
    'Returns one row for each requested key, in request order, and distinguishes a miss (found is false) from a negative entry (found is true, value is NULL).';

CREATE FUNCTION cache_lookup_many_bytes(keys text[], cache regclass DEFAULT 'pgcache.main')
    RETURNS TABLE (key text, found boolean, value bytea, expires_at timestamptz)
    AS 'MODULE_PATHNAME', 'cache_lookup_many_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 100;
COMMENT ON FUNCTION cache_lookup_many_bytes(text[], regclass) IS
    'Returns the result of cache_lookup_many() as bytea.';

CREATE FUNCTION cache_set_many(
    keys text[],
    vals text[],
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_set_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_many(text[], text[], interval, regclass) IS
    'Stores several entries as cache_set() does, and returns their number; if a key is given twice, its last value wins.';

CREATE FUNCTION cache_set_many_bytes(
    keys text[],
    vals bytea[],
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_set_many_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_set_many_bytes(text[], bytea[], interval, regclass) IS
    'Stores bytea values as cache_set_many() does.';

CREATE FUNCTION cache_delete_many(keys text[], cache regclass DEFAULT 'pgcache.main') RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_delete_many_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_delete_many(text[], regclass) IS
    'Removes several entries, and returns how many were live.';

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
    'Returns the live value; otherwise runs loader, one query for one value with the key as $1, and stores and returns its result; of many callers, one runs the loader.';

CREATE FUNCTION cache_fetch_json(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'cache_fetch_json_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_fetch_json(text, text, interval, regclass) IS
    'Returns the result of cache_fetch() as jsonb.';

CREATE FUNCTION cache_fetch_bytes(
    key text,
    loader text,
    ttl interval DEFAULT NULL,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS bytea
    AS 'MODULE_PATHNAME', 'cache_fetch_bytes_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_fetch_bytes(text, text, interval, regclass) IS
    'Returns the result of cache_fetch() as bytea.';

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
    'Returns a value that is computed outside of the database, or the right to compute it; state is hit, stale, win (compute it, then call cache_set_leased()) or busy; use it in FROM.';

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
    'Returns the result of cache_lease() with a bytea value, which cache_set_leased_bytes() stores.';

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
    'Stores a value only if the lease is still good (it has not expired, and the key has not changed since), and returns whether it did.';

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
    'Stores a bytea value as cache_set_leased() does.';

CREATE FUNCTION cache_release(
    key text,
    lease bigint,
    cache regclass DEFAULT 'pgcache.main'
) RETURNS boolean
    AS 'MODULE_PATHNAME', 'cache_release_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_release(text, bigint, regclass) IS
    'Gives up a lease, so that the next caller wins, and returns whether the lease was still good.';

CREATE FUNCTION cache_tune(
    cache regclass,
    negative_ttl interval DEFAULT NULL,
    ttl_jitter double precision DEFAULT NULL,
    early_refresh double precision DEFAULT NULL,
    max_bytes bigint DEFAULT NULL,
    reserve bigint DEFAULT NULL,
    touch_after double precision DEFAULT NULL
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_tune_all_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_tune(regclass, interval, double precision, double precision, bigint, bigint, double precision) IS
    'Changes how a cache is refreshed, its share of the hot tier, and when a touch writes; NULL keeps a setting, cache_forever() removes the ttl of negative entries, and 0 removes the other settings.';

-- Invalidation and limits ------------------------------------------------------------------------

-- Where a dependency is kept: triggers on the source have the condition
-- "true OR pgcache.depends('cache'::regclass, key)", which is never evaluated. Postgres itself follows
-- renames through it, guards what it needs, copies it to partitions, dumps and restores it.
CREATE FUNCTION pgcache.depends(cache regclass, key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN true;
COMMENT ON FUNCTION pgcache.depends(regclass, text) IS
    'Names the cache and the key in the condition of the trigger of a dependency.';
CREATE FUNCTION pgcache.depends(cache regclass, key text, settings text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN true;
COMMENT ON FUNCTION pgcache.depends(regclass, text, text) IS
    'Names the cache, the key and the settings under which the key is evaluated in the condition of the trigger of a dependency.';

CREATE FUNCTION pgcache.invalidate() RETURNS trigger
    AS 'MODULE_PATHNAME', 'invalidate_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.invalidate() IS
    'Invalidates entries as the row trigger of a table on which a cache depends; cache_depend() creates the trigger.';

CREATE FUNCTION pgcache.invalidate_all() RETURNS trigger
    AS 'MODULE_PATHNAME', 'invalidate_all_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.invalidate_all() IS
    'Invalidates entries as the truncate trigger of a table on which a cache depends; cache_depend() creates the trigger.';

CREATE FUNCTION cache_depend(
    source regclass,
    key_expression text,
    cache regclass
) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_depend_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_depend(regclass, text, regclass) IS
    'Makes a cache depend on a table: when a change of a row commits, the entry whose key is key_expression over the old and the new row is removed with that commit.';

CREATE FUNCTION cache_undepend(source regclass, cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_undepend_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_undepend(regclass, regclass) IS
    'Removes all dependencies of a cache on a table.';

CREATE FUNCTION cache_watch(cache regclass) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_watch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_watch(regclass) IS
    'Turns notifications of changes on, and returns the channel for LISTEN.';

CREATE FUNCTION cache_unwatch(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'cache_unwatch_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_unwatch(regclass) IS
    'Turns notifications of changes off.';

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
    'Counts a hit, and returns whether this fixed window allows it, how many more hits it would allow, and how long to wait; use it in FROM.';

-- Expiry -----------------------------------------------------------------------------------------

CREATE FUNCTION cache_expire(cache regclass DEFAULT NULL, max_rows integer DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'cache_expire_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_expire(regclass, integer) IS
    'Removes up to max_rows expired rows of one cache, or of all caches that the caller may delete from, then rows beyond max_entries, and returns how many had expired.';

CREATE FUNCTION cache_schedule_expiry(
    schedule text DEFAULT '10 seconds',
    max_time interval DEFAULT NULL
) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_schedule_expiry_timed_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_schedule_expiry(text, interval) IS
    'Creates or updates the pg_cron job that expires the caches of this database, or removes it for NULL, and returns what it did.';

CREATE FUNCTION pgcache.expire_for(max_time interval DEFAULT '5 seconds', OUT removed bigint, OUT done boolean) RETURNS record
    AS 'MODULE_PATHNAME', 'expire_for_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.expire_for(interval) IS
    'Removes expired entries of all caches in this database that the caller may delete from, until nothing is due or the time is over, and returns how many, and whether nothing is due any more.';

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
    'Returns the settings in one row of pgcache.caches.';

CREATE FUNCTION pgcache.refresh_settings(
    cache regclass,
    OUT negative_ttl interval,
    OUT ttl_jitter double precision,
    OUT early_refresh double precision
) RETURNS record
    AS 'MODULE_PATHNAME', 'refresh_settings_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.refresh_settings(regclass) IS
    'Returns columns of pgcache.caches that cache_tune() sets.';

CREATE FUNCTION pgcache.touch_after(cache regclass) RETURNS double precision
    AS 'MODULE_PATHNAME', 'touch_after_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.touch_after(regclass) IS
    'Returns the column touch_after of pgcache.caches.';
CREATE FUNCTION pgcache.share(
    cache regclass,
    OUT max_bytes bigint,
    OUT reserve bigint,
    OUT reserve_held bigint,
    OUT hot_bytes bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'share_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.share(regclass) IS
    'Returns the share of the hot tier that pgcache.shares shows.';

-- A trigger names the reserve of a cache in its argument. Only roles that may execute the function can
-- make such a trigger, so that no owner of a cache takes room from other caches by a definition by hand.
CREATE FUNCTION pgcache.reserve() RETURNS trigger
    AS 'MODULE_PATHNAME', 'reserve_wrapper'
    LANGUAGE C;
REVOKE EXECUTE ON FUNCTION pgcache.reserve() FROM PUBLIC;
COMMENT ON FUNCTION pgcache.reserve() IS
    'Names the reserve of a cache by the argument of a trigger that does nothing; made by cache_tune().';

-- Every relation that is a cache: tables by their trigger, memory caches by their view.
CREATE FUNCTION pgcache.hiding(
    cache regclass,
    OUT hides_expired boolean,
    OUT not_hidden_because text
) RETURNS record
    AS 'MODULE_PATHNAME', 'hiding_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.hiding(regclass) IS
    'Returns whether plain SQL sees no expired row of a cache, and if it may see one, the reason; used by pgcache.caches.';

CREATE FUNCTION pgcache.put_default(cache regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'put_default_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.put_default(regclass) IS
    'Gives the column expires_at of a table cache the DEFAULT of its ttl, as cache_create() does, and adds the trigger that a partition of another table needs; for a cache restored from an older dump.';

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
    'Lists the oids of all caches of this database.';
COMMENT ON COLUMN pgcache.all_caches.cache IS
    'Identifies the relation by its oid.';
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
           h.not_hidden_because,
           pgcache.touch_after(a.cache) AS touch_after,
           b.max_bytes,
           b.reserve
      FROM pgcache.all_caches AS a
     CROSS JOIN LATERAL pgcache.cache_settings(a.cache) AS s
     CROSS JOIN LATERAL pgcache.refresh_settings(a.cache) AS r
     CROSS JOIN LATERAL pgcache.hiding(a.cache) AS h
     CROSS JOIN LATERAL pgcache.share(a.cache) AS b
     WHERE pg_catalog.has_table_privilege(a.cache, 'SELECT');
COMMENT ON VIEW pgcache.caches IS
    'Lists every cache that the current user may SELECT from, with its settings.';
COMMENT ON COLUMN pgcache.caches.cache IS
    'Names the relation.';
COMMENT ON COLUMN pgcache.caches.storage IS
    'Shows the storage: unlogged, logged or memory.';
COMMENT ON COLUMN pgcache.caches.value_type IS
    'Shows the type of the values: text, jsonb or bytea.';
COMMENT ON COLUMN pgcache.caches.ttl IS
    'Shows the default ttl; NULL means that entries written without a ttl do not expire.';
COMMENT ON COLUMN pgcache.caches.max_entries IS
    'Limits the number of entries that a sweep keeps; NULL means no limit.';
COMMENT ON COLUMN pgcache.caches.grace IS
    'Shows how long past its deadline an entry may be served as stale; NULL means not at all.';
COMMENT ON COLUMN pgcache.caches.negative_ttl IS
    'Shows the ttl of negative entries that a loader makes; NULL means the ttl of values.';
COMMENT ON COLUMN pgcache.caches.ttl_jitter IS
    'Shows the share of a ttl by which it is shortened at most; NULL means 0.';
COMMENT ON COLUMN pgcache.caches.early_refresh IS
    'Shows the factor of early refresh; NULL means none.';
COMMENT ON COLUMN pgcache.caches.hides_expired IS
    'Tells whether plain SQL on this server sees no expired row of the cache.';
COMMENT ON COLUMN pgcache.caches.not_hidden_because IS
    'Explains why plain SQL may see expired rows; NULL if it does not.';
COMMENT ON COLUMN pgcache.caches.touch_after IS
    'Shows the share of its ttl by which a touch must move a deadline to write it; NULL means that each touch writes.';
COMMENT ON COLUMN pgcache.caches.max_bytes IS
    'Shows the bytes above which the cache makes room among its own entries; NULL means no bound.';
COMMENT ON COLUMN pgcache.caches.reserve IS
    'Shows the bytes of the hot tier that writes into other caches leave this cache; NULL means none.';
GRANT SELECT ON pgcache.caches TO PUBLIC;

CREATE VIEW pgcache.shares AS
    SELECT a.cache::pg_catalog.regclass AS cache,
           b.max_bytes,
           b.reserve,
           b.reserve_held,
           COALESCE(b.hot_bytes, 0) AS hot_bytes
      FROM pgcache.all_caches AS a
     CROSS JOIN LATERAL pgcache.share(a.cache) AS b
     WHERE pg_catalog.has_table_privilege(a.cache, 'SELECT');
COMMENT ON VIEW pgcache.shares IS
    'Lists what every cache that the current user may SELECT from may hold of the hot tier, what others leave it, and what it holds.';
COMMENT ON COLUMN pgcache.shares.cache IS
    'Names the relation.';
COMMENT ON COLUMN pgcache.shares.max_bytes IS
    'Shows the bytes above which the cache makes room among its own entries; NULL means no bound.';
COMMENT ON COLUMN pgcache.shares.reserve IS
    'Shows the bytes of the hot tier that writes into other caches leave this cache; NULL means none.';
COMMENT ON COLUMN pgcache.shares.reserve_held IS
    'Shows how many bytes of the reserve are in force; NULL without a reserve, and before the first use since the start of the server.';
COMMENT ON COLUMN pgcache.shares.hot_bytes IS
    'Shows the bytes that entries of the cache take in the hot tier.';
GRANT SELECT ON pgcache.shares TO PUBLIC;

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
    'Lists the caches that prepared transactions have changed; until the transaction is decided, the hot tier gets no copies of the changed keys (of any key if whole_cache is true), and cache_fetch() and leases store nothing under them.';
COMMENT ON COLUMN pgcache.prepared.gid IS
    'Shows the identifier under which the transaction was prepared.';
COMMENT ON COLUMN pgcache.prepared.cache IS
    'Names the relation, or shows its oid if only that transaction sees it.';
COMMENT ON COLUMN pgcache.prepared.owner IS
    'Names the role that prepared the transaction.';
COMMENT ON COLUMN pgcache.prepared.prepared IS
    'Shows when the transaction was prepared.';
COMMENT ON COLUMN pgcache.prepared.age IS
    'Shows how long ago the transaction was prepared.';
COMMENT ON COLUMN pgcache.prepared.whole_cache IS
    'Tells whether the whole cache counts as changed: it was altered, dropped, emptied or changed in more than 10,000 keys, or the server has restarted since.';
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
    'Returns the figures of pgcache.stats.';

-- The figures of sweeps are null without preload.
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
    'Returns the figures of sweeps in pgcache.stats.';
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
                    NULLIF(pg_catalog.pg_total_relation_size(a.cache), 0), s.hot_bytes, 0) AS bytes,
           CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'v' THEN 'memory'
                WHEN c.relpersistence OPERATOR(pg_catalog.=) 'p' THEN 'logged'
                ELSE 'unlogged'
           END AS storage
      FROM pgcache.all_caches AS a
      JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) a.cache
      LEFT JOIN pgcache.figures() AS s ON s.cache OPERATOR(pg_catalog.=) a.cache
      LEFT JOIN pgcache.sweep_figures() AS w ON w.cache OPERATOR(pg_catalog.=) a.cache;
COMMENT ON VIEW pgcache.stats IS
    'Shows figures of each cache of this database since the server started or pgcache.reset_stats(), what its sweeps left, and its bytes now.';
COMMENT ON COLUMN pgcache.stats.cache IS
    'Names the relation.';
COMMENT ON COLUMN pgcache.stats.hot_hits IS
    'Counts reads served from the hot tier, which for a memory cache are all hits.';
COMMENT ON COLUMN pgcache.stats.table_hits IS
    'Counts reads served from the table.';
COMMENT ON COLUMN pgcache.stats.misses IS
    'Counts reads that found no live entry.';
COMMENT ON COLUMN pgcache.stats.sets IS
    'Counts entries that functions stored, including add, replace, cas, incr, fetch and batches, but not plain SQL or touch.';
COMMENT ON COLUMN pgcache.stats.deletes IS
    'Counts live entries that functions removed by delete, delete_if, delete_many, delete_prefix and take, but not by plain SQL.';
COMMENT ON COLUMN pgcache.stats.expired IS
    'Counts rows, copies and memory entries removed because of time.';
COMMENT ON COLUMN pgcache.stats.evicted IS
    'Counts copies and memory entries removed from the hot tier to make room.';
COMMENT ON COLUMN pgcache.stats.invalidated IS
    'Counts copies removed because their rows changed.';
COMMENT ON COLUMN pgcache.stats.hot_entries IS
    'Counts the entries in the hot tier now.';
COMMENT ON COLUMN pgcache.stats.hot_bytes IS
    'Shows the bytes that these entries take in the hot tier, in whole granules of 64 bytes.';
COMMENT ON COLUMN pgcache.stats.trimmed IS
    'Counts rows removed because of max_entries.';
COMMENT ON COLUMN pgcache.stats.last_sweep IS
    'Shows when the last sweep of the whole table ended; NULL if none has, or for a memory cache.';
COMMENT ON COLUMN pgcache.stats.sweep_lag IS
    'Shows how long the row that waited longest had been expired when the last sweep found it.';
COMMENT ON COLUMN pgcache.stats.waiting IS
    'Estimates the expired rows that the last sweep left.';
COMMENT ON COLUMN pgcache.stats.bytes IS
    'Shows the bytes of the table, its indexes and TOAST on disk, or hot_bytes for a memory cache.';
COMMENT ON COLUMN pgcache.stats.storage IS
    'Shows the storage, unlogged, logged or memory; a memory cache loses what it evicts, others only a copy.';

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
    'Returns the figures of pgcache.hot_tier.';

CREATE FUNCTION pgcache.tier_shares(
    OUT slots bigint,
    OUT slots_used bigint,
    OUT leases bigint,
    OUT leases_used bigint,
    OUT elsewhere_bytes bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'tier_shares_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.tier_shares() IS
    'Returns the figures of pgcache.hot_tier that tell how its places are shared.';

CREATE VIEW pgcache.hot_tier AS
    SELECT f.*, s.* FROM pgcache.tier_figures() AS f, pgcache.tier_shares() AS s;
COMMENT ON VIEW pgcache.hot_tier IS
    'Shows the hot tier of this server: bytes (size, used, bookkeeping, holes, free, elsewhere_bytes) and counts (entries, evictions, rejected, lock_waits, pending, slots, leases).';
COMMENT ON COLUMN pgcache.hot_tier.size IS
    'Shows the bytes of shared memory of the hot tier, which are at most pgcache.hot_size.';
COMMENT ON COLUMN pgcache.hot_tier.used IS
    'Shows the bytes in use, which are size minus free.';
COMMENT ON COLUMN pgcache.hot_tier.entries IS
    'Counts the entries, which are copies of rows and entries of memory caches.';
COMMENT ON COLUMN pgcache.hot_tier.evictions IS
    'Counts entries removed to make room since the server started or pgcache.reset_stats().';
COMMENT ON COLUMN pgcache.hot_tier.rejected IS
    'Counts values that are too long for the hot tier, which are not copied or which a memory cache rejects.';
COMMENT ON COLUMN pgcache.hot_tier.lock_waits IS
    'Counts how often a process had to wait for a lock of the hot tier.';
COMMENT ON COLUMN pgcache.hot_tier.bookkeeping IS
    'Shows the bytes of the index, locks, slots, leases and page tables.';
COMMENT ON COLUMN pgcache.hot_tier.holes IS
    'Shows the bytes that are lost inside pages in use.';
COMMENT ON COLUMN pgcache.hot_tier.free IS
    'Shows the bytes in free pages.';
COMMENT ON COLUMN pgcache.hot_tier.pending IS
    'Counts writers that are committing; one that stays for minutes waits for a standby or is a defect.';
COMMENT ON COLUMN pgcache.hot_tier.slots IS
    'Counts the places for caches; a cache without one works without copies, and a memory cache needs one.';
COMMENT ON COLUMN pgcache.hot_tier.slots_used IS
    'Counts the places that caches of all databases take.';
COMMENT ON COLUMN pgcache.hot_tier.leases IS
    'Counts the places for leases, which cache_fetch and cache_lease take.';
COMMENT ON COLUMN pgcache.hot_tier.leases_used IS
    'Counts the places that leases take now.';
COMMENT ON COLUMN pgcache.hot_tier.elsewhere_bytes IS
    'Shows the bytes of entries that belong to caches of other databases.';

CREATE FUNCTION pgcache.reset_stats(cache regclass DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'reset_stats_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.reset_stats(regclass) IS
    'Resets to 0 the figures of one cache, or of all caches in this database, of the hot tier and of the Redis protocol.';

CREATE FUNCTION pgcache.verify(cache regclass) RETURNS TABLE (key text, hot_value text, table_value text)
    AS 'MODULE_PATHNAME', 'verify_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.verify(regclass) IS
    'Returns copies in the hot tier that differ from their rows; any result means that pgcache has a defect.';
CREATE FUNCTION pgcache.verify_dependencies() RETURNS TABLE (source regclass, cache regclass, statement text)
    AS 'MODULE_PATHNAME', 'verify_dependencies_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.verify_dependencies() IS
    'Returns dependencies from before 0.5.0 whose key follows the settings of each session that changes a row, with the statement to run, and warns of each.';
REVOKE ALL ON FUNCTION pgcache.verify_dependencies() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.verify_dependencies() TO pg_monitor;

CREATE FUNCTION pgcache.table_path_taken(
    OUT direct bigint,
    OUT plan bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'table_path_taken_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.table_path_taken() IS
    'Returns how often this session accessed tables directly by their index, and how often by a prepared plan; the setting pgcache.table_path selects the way.';

-- Keys never appear in figures, but not every role may know how often a cache is read.
REVOKE ALL ON FUNCTION pgcache.figures(), pgcache.tier_figures(), pgcache.tier_shares(), pgcache.reset_stats(regclass)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.figures(), pgcache.tier_figures(), pgcache.tier_shares() TO pg_monitor;
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
    'Returns the clients in pgcache.resp_clients: those of the caller''s roles, or all for members of pg_monitor.';
-- It shows each role its own clients alone, so default privileges must not take it away.
GRANT EXECUTE ON FUNCTION pgcache.resp_clients_now() TO PUBLIC;

CREATE VIEW pgcache.resp_clients AS
    SELECT c.id, c.pid, c.role::pg_catalog.regrole AS role, c.name, c.library, c.address, c.connected_at,
           c.last_request_at, c.database, c.protocol, c.last_command, c.commands, c.in_transaction,
           c.channels, c.unread_bytes, c.unsent_bytes
      FROM pgcache.resp_clients_now() AS c;
COMMENT ON VIEW pgcache.resp_clients IS
    'Lists clients of the Redis protocol: those of the caller''s roles, or all for members of pg_monitor; the view is empty if the Redis protocol is off.';
COMMENT ON COLUMN pgcache.resp_clients.id IS
    'Identifies the client for pgcache.resp_kill(), as CLIENT ID does; the server uses a number once while it runs.';
COMMENT ON COLUMN pgcache.resp_clients.pid IS
    'Identifies the process that owns the connection.';
COMMENT ON COLUMN pgcache.resp_clients.role IS
    'Names the role of the client; NULL if the client has not authenticated.';
COMMENT ON COLUMN pgcache.resp_clients.name IS
    'Shows the name set by CLIENT SETNAME.';
COMMENT ON COLUMN pgcache.resp_clients.library IS
    'Shows the name and version of the library set by CLIENT SETINFO.';
COMMENT ON COLUMN pgcache.resp_clients.address IS
    'Shows the address of the client, or the path of the unix socket.';
COMMENT ON COLUMN pgcache.resp_clients.connected_at IS
    'Shows when the client connected.';
COMMENT ON COLUMN pgcache.resp_clients.last_request_at IS
    'Shows when the last request of the client arrived.';
COMMENT ON COLUMN pgcache.resp_clients.database IS
    'Shows the database number chosen by SELECT, which is a position in pgcache.resp_caches.';
COMMENT ON COLUMN pgcache.resp_clients.protocol IS
    'Shows the version of the protocol, 2 or 3.';
COMMENT ON COLUMN pgcache.resp_clients.last_command IS
    'Names the last command without its arguments; unknown if it is not a command.';
COMMENT ON COLUMN pgcache.resp_clients.commands IS
    'Counts the commands that the client has sent.';
COMMENT ON COLUMN pgcache.resp_clients.in_transaction IS
    'Tells whether the client is between MULTI and EXEC.';
COMMENT ON COLUMN pgcache.resp_clients.channels IS
    'Counts the channels and patterns to which the client subscribes.';
COMMENT ON COLUMN pgcache.resp_clients.unread_bytes IS
    'Shows the bytes of memory for requests that have arrived in part or wait for EXEC.';
COMMENT ON COLUMN pgcache.resp_clients.unsent_bytes IS
    'Shows the bytes of replies that the client has not taken yet.';
GRANT SELECT ON pgcache.resp_clients TO PUBLIC;

CREATE FUNCTION pgcache.resp_kill(id bigint) RETURNS boolean
    AS 'MODULE_PATHNAME', 'resp_kill_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.resp_kill(bigint) IS
    'Terminates a client of the Redis protocol, and returns false if no client has this id.';

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
    'Returns the figures of pgcache.resp_stats.';

CREATE FUNCTION pgcache.resp_memory() RETURNS TABLE (
    client_memory bigint,
    evicted_clients bigint
)
    AS 'MODULE_PATHNAME', 'resp_memory_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 1;
COMMENT ON FUNCTION pgcache.resp_memory() IS
    'Returns the columns of pgcache.resp_stats about the memory of clients.';

CREATE VIEW pgcache.resp_stats AS
    SELECT f.*, m.client_memory, m.evicted_clients
      FROM pgcache.resp_figures() AS f, pgcache.resp_memory() AS m;
COMMENT ON VIEW pgcache.resp_stats IS
    'Shows figures of the Redis protocol since the server started or the last reset; the view is empty if the Redis protocol is off.';
COMMENT ON COLUMN pgcache.resp_stats.clients IS
    'Counts the clients that are connected now.';
COMMENT ON COLUMN pgcache.resp_stats.connections IS
    'Counts the connections that were accepted.';
COMMENT ON COLUMN pgcache.resp_stats.rejected IS
    'Counts the connections that were rejected because of pgcache.resp_max_clients.';
COMMENT ON COLUMN pgcache.resp_stats.cut_off IS
    'Counts clients that were disconnected because they did not read (pgcache.resp_max_output), their command failed or they missed messages.';
COMMENT ON COLUMN pgcache.resp_stats.killed IS
    'Counts clients that were terminated by CLIENT KILL or pgcache.resp_kill(), or because their role may no longer log in.';
COMMENT ON COLUMN pgcache.resp_stats.commands IS
    'Counts the commands that were answered.';
COMMENT ON COLUMN pgcache.resp_stats.batches IS
    'Counts the turns of clients in which commands were answered, each of which covers what arrived in one read, within bounds.';
COMMENT ON COLUMN pgcache.resp_stats.largest_batch IS
    'Shows the largest number of commands in one batch.';
COMMENT ON COLUMN pgcache.resp_stats.hits IS
    'Counts values that were requested and found.';
COMMENT ON COLUMN pgcache.resp_stats.misses IS
    'Counts values that were requested and not found.';
COMMENT ON COLUMN pgcache.resp_stats.bytes_in IS
    'Counts the bytes that clients have sent.';
COMMENT ON COLUMN pgcache.resp_stats.bytes_out IS
    'Counts the bytes that were sent to clients.';
COMMENT ON COLUMN pgcache.resp_stats.failed_authentications IS
    'Counts names and passwords that were rejected.';
COMMENT ON COLUMN pgcache.resp_stats.failed_handshakes IS
    'Counts connections whose TLS handshake failed.';
COMMENT ON COLUMN pgcache.resp_stats.questions IS
    'Counts requests to executors, about passwords and privileges, that were answered.';
COMMENT ON COLUMN pgcache.resp_stats.queue_depth IS
    'Counts the requests and commands on tables that wait for an executor or are being processed now.';
COMMENT ON COLUMN pgcache.resp_stats.queue_full IS
    'Counts how often a client waited for a place in the queue.';
COMMENT ON COLUMN pgcache.resp_stats.messages IS
    'Counts messages of pgcache.publish() that were delivered, once for each process with subscribers.';
COMMENT ON COLUMN pgcache.resp_stats.ring_overflows IS
    'Counts how often messages were lost because a process did not take them in time, so that its subscribers were disconnected.';
COMMENT ON COLUMN pgcache.resp_stats.tracked_keys IS
    'Counts the keys that clients with CLIENT TRACKING have read, and that have not changed since.';
COMMENT ON COLUMN pgcache.resp_stats.since IS
    'Shows since when the figures are counted.';
COMMENT ON COLUMN pgcache.resp_stats.client_memory IS
    'Shows the bytes of memory that all clients use now, which pgcache.resp_max_clients_memory limits.';
COMMENT ON COLUMN pgcache.resp_stats.evicted_clients IS
    'Counts clients that were disconnected because all clients used too much memory (pgcache.resp_max_clients_memory).';

CREATE FUNCTION pgcache.publish(channel text, message text) RETURNS void
    AS 'MODULE_PATHNAME', 'publish_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.publish(text, text) IS
    'Sends a message to the clients of the Redis protocol that subscribe to the channel, when the transaction commits.';

-- Figures are not everybody's business; and programs trust what comes by a channel.
REVOKE ALL ON FUNCTION pgcache.resp_figures(), pgcache.resp_memory(), pgcache.publish(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.resp_figures(), pgcache.resp_memory() TO pg_monitor;
GRANT SELECT ON pgcache.resp_stats TO pg_monitor;

-- The cache of database 0 of the Redis protocol, unless pgcache.resp_caches names others. Nothing is
-- granted on it. It belongs to the extension, and a dump does not have its entries: it has the grants
-- on it only.
SELECT @extschema@.cache_create('pgcache.resp'::pg_catalog.text, NULL::pg_catalog.interval, 'memory'::pg_catalog.text,
       'pg_catalog.bytea'::pg_catalog.regtype, NULL::pg_catalog.int8, NULL::pg_catalog.interval, false);

CREATE FUNCTION pgcache.tell_what_is_missing() RETURNS void
    AS 'MODULE_PATHNAME', 'tell_what_is_missing_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.tell_what_is_missing() IS
    'Reports in a NOTICE at the commit what this server lacks for all of pgcache, and the lines that change it; CREATE EXTENSION calls it.';

-- It shows shared_preload_libraries, which not everybody may read.
REVOKE ALL ON FUNCTION pgcache.tell_what_is_missing() FROM PUBLIC;

SELECT pgcache.tell_what_is_missing();
