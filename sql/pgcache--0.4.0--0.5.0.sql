-- From pgcache 0.4.0 to 0.5.0.

\echo Use "ALTER EXTENSION pgcache UPDATE TO '0.5.0'" to load this file. \quit

-- The Redis protocol -------------------------------------------------------------------------

CREATE FUNCTION pgcache.resp_memory() RETURNS TABLE (
    client_memory bigint,
    evicted_clients bigint
)
    AS 'MODULE_PATHNAME', 'resp_memory_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED
    ROWS 1;
COMMENT ON FUNCTION pgcache.resp_memory() IS
    'Returns the columns of pgcache.resp_stats about the memory of clients.';

CREATE OR REPLACE VIEW pgcache.resp_stats AS
    SELECT f.*, m.client_memory, m.evicted_clients
      FROM pgcache.resp_figures() AS f, pgcache.resp_memory() AS m;

REVOKE ALL ON FUNCTION pgcache.resp_memory() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.resp_memory() TO pg_monitor;

-- Comments ------------------------------------------------------------------------------------

COMMENT ON FUNCTION pgcache.record() IS
    'Tracks row changes as the row trigger of every table cache; its arguments are the settings of the cache, which cache_alter() changes.';
COMMENT ON FUNCTION pgcache.columns() IS
    'Stores the names of the columns of a table that cache_attach() made a cache, as a trigger that is disabled.';
COMMENT ON FUNCTION pgcache.record_truncate() IS
    'Tracks TRUNCATE as the truncate trigger of every table cache.';
COMMENT ON FUNCTION pgcache.counter_sum(text, bigint) IS
    'Computes the sum for cache_incr(), and raises 22P02 if value is not a decimal integer, and 22003 on overflow.';
COMMENT ON FUNCTION pgcache.live_support(internal) IS
    'Tells the planner how many rows pgcache.live() keeps.';
COMMENT ON FUNCTION pgcache.live(timestamptz) IS
    'Returns whether plain SQL sees a row with this deadline; reads the clock once for each scan, and returns true for NULL, with pgcache.show_expired and for foreign keys.';
COMMENT ON FUNCTION pgcache.live_unix(bigint, integer) IS
    'Returns whether plain SQL sees a row whose deadline is this Unix time, with that many units per second; zero and negative numbers mean no expiry, as NULL does.';
COMMENT ON FUNCTION pgcache.renew(text, regclass, text) IS
    'Returns the key; in a statement that writes this key, where the planner puts the call, first removes the expired row under the key, unless the written row had the key before.';
COMMENT ON FUNCTION pgcache.renew_copied(text, regclass) IS
    'Returns true; in the condition of a COPY, where pgcache puts the call, first removes the expired row under the key.';
COMMENT ON FUNCTION pgcache.renew_row() IS
    'Removes the expired row under the key that is written, as the row trigger of a cache that is a partition of a table that is not a cache.';
COMMENT ON FUNCTION pgcache.memory_entries(text) IS
    'Returns the live entries of the memory cache whose view has these settings; needs SELECT on that view.';
COMMENT ON FUNCTION cache_forever() IS
    'Returns the ttl that means no expiry.';
COMMENT ON FUNCTION cache_create(text, interval, text, regtype, bigint, interval, boolean) IS
    'Creates a cache that the caller owns; storage is unlogged, logged or memory, and value_type is text, jsonb or bytea.';
COMMENT ON FUNCTION cache_alter(regclass, interval, bigint, interval) IS
    'Changes settings of a cache; NULL keeps a setting, cache_forever() removes the default ttl, 0 removes the limit, and an interval of 0 removes the grace.';
COMMENT ON FUNCTION cache_attach(regclass, interval, name, name, name, bigint, interval, text) IS
    'Makes an existing table a cache; expires_unit is s or ms if its deadlines are Unix times.';
COMMENT ON FUNCTION cache_detach(regclass) IS
    'Turns a cache back into a plain table with its rows, columns, indexes and privileges.';
COMMENT ON FUNCTION cache_drop(regclass) IS
    'Drops a cache with its entries, as DROP TABLE or, for a memory cache, DROP VIEW does.';
COMMENT ON FUNCTION cache_clear(regclass) IS
    'Removes all entries of a cache, like TRUNCATE and with its lock.';
COMMENT ON FUNCTION cache_set(text, text, interval, regclass) IS
    'Inserts or overwrites an entry, including its deadline; a NULL value makes a negative entry.';
COMMENT ON FUNCTION cache_set_json(text, jsonb, interval, regclass) IS
    'Stores a jsonb value as cache_set() does.';
COMMENT ON FUNCTION cache_set_bytes(text, bytea, interval, regclass) IS
    'Stores a bytea value as cache_set() does.';
COMMENT ON FUNCTION cache_add(text, text, interval, regclass) IS
    'Stores a value only if the key has no live entry, and returns whether it did.';
COMMENT ON FUNCTION cache_add_bytes(text, bytea, interval, regclass) IS
    'Stores a bytea value as cache_add() does.';
COMMENT ON FUNCTION cache_replace(text, text, interval, regclass) IS
    'Stores a value only if the key has a live entry, and returns whether it did.';
COMMENT ON FUNCTION cache_replace_bytes(text, bytea, interval, regclass) IS
    'Stores a bytea value as cache_replace() does.';
COMMENT ON FUNCTION cache_cas(text, text, text, interval, regclass) IS
    'Overwrites an entry only if its live value equals expected (compare and set); NULL equals an absent or negative entry.';
COMMENT ON FUNCTION cache_cas_bytes(text, bytea, bytea, interval, regclass) IS
    'Compares and overwrites bytea values as cache_cas() does.';
COMMENT ON FUNCTION cache_incr(text, bigint, interval, regclass) IS
    'Adds to a counter and returns the sum; ttl applies only if the call creates the entry.';
COMMENT ON FUNCTION cache_incr_existing(text, bigint, regclass) IS
    'Adds to an existing counter and returns the sum; returns NULL if there is no live entry, and creates none.';
COMMENT ON FUNCTION cache_touch(text, interval, regclass) IS
    'Gives a live entry a new deadline, and returns whether such an entry exists.';
COMMENT ON FUNCTION cache_persist(text, regclass) IS
    'Removes the deadline of a live entry, and returns whether such an entry exists.';
COMMENT ON FUNCTION cache_get(text, regclass) IS
    'Returns the live value, or NULL on a miss and for a negative entry.';
COMMENT ON FUNCTION cache_get_json(text, regclass) IS
    'Returns the result of cache_get() as jsonb.';
COMMENT ON FUNCTION cache_get_bytes(text, regclass) IS
    'Returns the result of cache_get() as bytea.';
COMMENT ON FUNCTION cache_get_touch(text, interval, regclass) IS
    'Returns the result of cache_get() and also gives the entry a new deadline (sliding expiry).';
COMMENT ON FUNCTION cache_get_touch_bytes(text, interval, regclass) IS
    'Returns the result of cache_get_touch() as bytea.';
COMMENT ON FUNCTION cache_lookup(text, regclass) IS
    'Returns exactly one row, which distinguishes a miss (found is false) from a negative entry (found is true, value is NULL); use it in FROM.';
COMMENT ON FUNCTION cache_lookup_bytes(text, regclass) IS
    'Returns the result of cache_lookup() as bytea.';
COMMENT ON FUNCTION cache_exists(text, regclass) IS
    'Returns whether the key has a live entry, including a negative one.';
COMMENT ON FUNCTION cache_ttl(text, regclass) IS
    'Returns the time left until an entry expires, or NULL if it does not expire or does not exist.';
COMMENT ON FUNCTION cache_scan(text, text, integer, regclass) IS
    'Returns live entries in key order (collation C), one page at a time: pass the last key as after.';
COMMENT ON FUNCTION cache_scan_bytes(text, text, integer, regclass) IS
    'Returns the result of cache_scan() as bytea.';
COMMENT ON FUNCTION cache_keys(text, text, integer, regclass) IS
    'Returns live keys in order (collation C) without their values, one page at a time as in cache_scan().';
COMMENT ON FUNCTION cache_count(regclass) IS
    'Returns the number of live entries, including negative ones.';
COMMENT ON FUNCTION pgcache.node_of(regclass, text, integer) IS
    'Returns which of so many servers, counted from 0, has a key: the remainder of the hash partition into which the key falls.';
COMMENT ON FUNCTION cache_distribute(regclass, integer) IS
    'Spreads a table cache over the nodes of a Citus cluster; functions then work from every node.';
COMMENT ON FUNCTION pgcache.at_key(text, bigint, text, text[]) IS
    'Runs a call of a function on a distributed cache, as the nodes of Citus send it to each other.';
COMMENT ON FUNCTION cache_delete(text, regclass) IS
    'Removes an entry, and returns whether it was live.';
COMMENT ON FUNCTION cache_delete_if(text, text, regclass) IS
    'Removes an entry if its live value equals expected (unlock); NULL equals a negative entry.';
COMMENT ON FUNCTION cache_delete_if_bytes(text, bytea, regclass) IS
    'Compares and removes a bytea value as cache_delete_if() does.';
COMMENT ON FUNCTION cache_delete_prefix(text, regclass) IS
    'Removes all entries whose key begins with prefix, and returns how many were live.';
COMMENT ON FUNCTION cache_take(text, regclass) IS
    'Removes an entry and returns its live value.';
COMMENT ON FUNCTION cache_take_bytes(text, regclass) IS
    'Removes an entry and returns its live value as bytea.';
COMMENT ON FUNCTION cache_get_many(text[], regclass) IS
    'Returns one row for each requested key, in request order, with a NULL value for a miss.';
COMMENT ON FUNCTION cache_get_many_bytes(text[], regclass) IS
    'Returns the result of cache_get_many() as bytea.';
COMMENT ON FUNCTION cache_lookup_many(text[], regclass) IS
    'Returns one row for each requested key, in request order, and distinguishes a miss (found is false) from a negative entry (found is true, value is NULL).';
COMMENT ON FUNCTION cache_lookup_many_bytes(text[], regclass) IS
    'Returns the result of cache_lookup_many() as bytea.';
COMMENT ON FUNCTION cache_set_many(text[], text[], interval, regclass) IS
    'Stores several entries as cache_set() does, and returns their number; if a key is given twice, its last value wins.';
COMMENT ON FUNCTION cache_set_many_bytes(text[], bytea[], interval, regclass) IS
    'Stores bytea values as cache_set_many() does.';
COMMENT ON FUNCTION cache_delete_many(text[], regclass) IS
    'Removes several entries, and returns how many were live.';
COMMENT ON FUNCTION cache_fetch(text, text, interval, regclass) IS
    'Returns the live value; otherwise runs loader, one query for one value with the key as $1, and stores and returns its result; of many callers, one runs the loader.';
COMMENT ON FUNCTION cache_fetch_json(text, text, interval, regclass) IS
    'Returns the result of cache_fetch() as jsonb.';
COMMENT ON FUNCTION cache_fetch_bytes(text, text, interval, regclass) IS
    'Returns the result of cache_fetch() as bytea.';
COMMENT ON FUNCTION cache_lease(text, interval, regclass) IS
    'Returns a value that is computed outside of the database, or the right to compute it; state is hit, stale, win (compute it, then call cache_set_leased()) or busy; use it in FROM.';
COMMENT ON FUNCTION cache_lease_bytes(text, interval, regclass) IS
    'Returns the result of cache_lease() with a bytea value, which cache_set_leased_bytes() stores.';
COMMENT ON FUNCTION cache_set_leased(text, text, bigint, interval, regclass) IS
    'Stores a value only if the lease is still good (it has not expired, and the key has not changed since), and returns whether it did.';
COMMENT ON FUNCTION cache_set_leased_bytes(text, bytea, bigint, interval, regclass) IS
    'Stores a bytea value as cache_set_leased() does.';
COMMENT ON FUNCTION cache_release(text, bigint, regclass) IS
    'Gives up a lease, so that the next caller wins, and returns whether the lease was still good.';
-- cache_tune() and cache_schedule_expiry() get more arguments in place, as scripts of Postgres' own extensions change
-- arguments. So they keep owner, privileges, and the functions and views that call them: for a call with fewer arguments
-- the planner adds the defaults.
CREATE FUNCTION pgcache.cache_tune(
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
UPDATE pg_catalog.pg_proc AS kept
   SET (prolang, pronargs, pronargdefaults, proargtypes, proargnames, proargdefaults, prosrc, probin) =
       (SELECT prolang, pronargs, pronargdefaults, proargtypes, proargnames, proargdefaults, prosrc, probin
         FROM pg_catalog.pg_proc AS made
        WHERE made.oid OPERATOR(pg_catalog.=)
              'pgcache.cache_tune(regclass, interval, double precision, double precision, bigint, bigint, double precision)'::pg_catalog.regprocedure)
 WHERE kept.oid OPERATOR(pg_catalog.=)
       'cache_tune(regclass, interval, double precision, double precision)'::pg_catalog.regprocedure;
DROP FUNCTION pgcache.cache_tune(regclass, interval, double precision, double precision, bigint, bigint, double precision);
COMMENT ON FUNCTION cache_tune(regclass, interval, double precision, double precision, bigint, bigint, double precision) IS
    'Changes how a cache is refreshed, its share of the hot tier, and when a touch writes; NULL keeps a setting, cache_forever() removes the ttl of negative entries, and 0 removes the other settings.';
COMMENT ON FUNCTION pgcache.depends(regclass, text) IS
    'Names the cache and the key in the condition of the trigger of a dependency.';
CREATE FUNCTION pgcache.depends(cache regclass, key text, settings text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN true;
COMMENT ON FUNCTION pgcache.depends(regclass, text, text) IS
    'Names the cache, the key and the settings under which the key is evaluated in the condition of the trigger of a dependency.';
COMMENT ON FUNCTION pgcache.invalidate() IS
    'Invalidates entries as the row trigger of a table on which a cache depends; cache_depend() creates the trigger.';
COMMENT ON FUNCTION pgcache.invalidate_all() IS
    'Invalidates entries as the truncate trigger of a table on which a cache depends; cache_depend() creates the trigger.';
COMMENT ON FUNCTION cache_depend(regclass, text, regclass) IS
    'Makes a cache depend on a table: when a change of a row commits, the entry whose key is key_expression over the old and the new row is removed with that commit.';
COMMENT ON FUNCTION cache_undepend(regclass, regclass) IS
    'Removes all dependencies of a cache on a table.';
COMMENT ON FUNCTION cache_watch(regclass) IS
    'Turns notifications of changes on, and returns the channel for LISTEN.';
COMMENT ON FUNCTION cache_unwatch(regclass) IS
    'Turns notifications of changes off.';
COMMENT ON FUNCTION cache_rate_limit(text, bigint, interval, regclass) IS
    'Counts a hit, and returns whether this fixed window allows it, how many more hits it would allow, and how long to wait; use it in FROM.';
COMMENT ON FUNCTION cache_expire(regclass, integer) IS
    'Removes up to max_rows expired rows of one cache, or of all caches that the caller may delete from, then rows beyond max_entries, and returns how many had expired.';
-- A job that was scheduled before continues as it was.
CREATE FUNCTION pgcache.cache_schedule_expiry(
    schedule text DEFAULT '10 seconds',
    max_time interval DEFAULT NULL
) RETURNS text
    AS 'MODULE_PATHNAME', 'cache_schedule_expiry_timed_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
UPDATE pg_catalog.pg_proc AS kept
   SET (prolang, pronargs, pronargdefaults, proargtypes, proargnames, proargdefaults, prosrc, probin) =
       (SELECT prolang, pronargs, pronargdefaults, proargtypes, proargnames, proargdefaults, prosrc, probin
         FROM pg_catalog.pg_proc AS made
        WHERE made.oid OPERATOR(pg_catalog.=)
              'pgcache.cache_schedule_expiry(text, interval)'::pg_catalog.regprocedure)
 WHERE kept.oid OPERATOR(pg_catalog.=)
       'cache_schedule_expiry(text)'::pg_catalog.regprocedure;
DROP FUNCTION pgcache.cache_schedule_expiry(text, interval);
COMMENT ON FUNCTION cache_schedule_expiry(text, interval) IS
    'Creates or updates the pg_cron job that expires the caches of this database, or removes it for NULL, and returns what it did.';
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

CREATE FUNCTION pgcache.expire_for(max_time interval DEFAULT '5 seconds', OUT removed bigint, OUT done boolean) RETURNS record
    AS 'MODULE_PATHNAME', 'expire_for_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgcache.expire_for(interval) IS
    'Removes expired entries of all caches in this database that the caller may delete from, until nothing is due or the time is over, and returns how many, and whether nothing is due any more.';
COMMENT ON FUNCTION pgcache.cache_settings(regclass) IS
    'Returns the settings in one row of pgcache.caches.';
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
COMMENT ON FUNCTION pgcache.hiding(regclass) IS
    'Returns whether plain SQL sees no expired row of a cache, and if it may see one, the reason; used by pgcache.caches.';
COMMENT ON FUNCTION pgcache.put_default(regclass) IS
    'Gives the column expires_at of a table cache the DEFAULT of its ttl, as cache_create() does, and adds the trigger that a partition of another table needs; for a cache restored from an older dump.';
COMMENT ON VIEW pgcache.all_caches IS
    'Lists the oids of all caches of this database.';
COMMENT ON COLUMN pgcache.all_caches.cache IS
    'Identifies the relation by its oid.';
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
COMMENT ON FUNCTION pgcache.figures() IS
    'Returns the figures of pgcache.stats.';
COMMENT ON FUNCTION pgcache.sweep_figures() IS
    'Returns the figures of sweeps in pgcache.stats.';
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
REVOKE ALL ON FUNCTION pgcache.tier_shares() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.tier_shares() TO pg_monitor;
CREATE OR REPLACE VIEW pgcache.hot_tier AS
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
COMMENT ON FUNCTION pgcache.reset_stats(regclass) IS
    'Resets to 0 the figures of one cache, or of all caches in this database, of the hot tier and of the Redis protocol.';
COMMENT ON FUNCTION pgcache.verify(regclass) IS
    'Returns copies in the hot tier that differ from their rows; any result means that pgcache has a defect.';
CREATE FUNCTION pgcache.verify_dependencies() RETURNS TABLE (source regclass, cache regclass, statement text)
    AS 'MODULE_PATHNAME', 'verify_dependencies_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgcache.verify_dependencies() IS
    'Returns dependencies from before 0.5.0 whose key follows the settings of each session that changes a row, with the statement to run, and warns of each.';
REVOKE ALL ON FUNCTION pgcache.verify_dependencies() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgcache.verify_dependencies() TO pg_monitor;
COMMENT ON FUNCTION pgcache.table_path_taken() IS
    'Returns how often this session accessed tables directly by their index, and how often by a prepared plan; the setting pgcache.table_path selects the way.';
COMMENT ON FUNCTION pgcache.resp_clients_now() IS
    'Returns the clients in pgcache.resp_clients: those of the caller''s roles, or all for members of pg_monitor.';
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
COMMENT ON FUNCTION pgcache.resp_kill(bigint) IS
    'Terminates a client of the Redis protocol, and returns false if no client has this id.';
COMMENT ON FUNCTION pgcache.resp_figures() IS
    'Returns the figures of pgcache.resp_stats.';
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
COMMENT ON FUNCTION pgcache.publish(text, text) IS
    'Sends a message to the clients of the Redis protocol that subscribe to the channel, when the transaction commits.';
COMMENT ON FUNCTION pgcache.tell_what_is_missing() IS
    'Reports in a NOTICE at the commit what this server lacks for all of pgcache, and the lines that change it; CREATE EXTENSION calls it.';

-- Warns of dependencies whose key follows the settings of each writer.
SELECT pgcache.verify_dependencies();

-- The planner knows how many entries a memory cache has.
CREATE FUNCTION pgcache.memory_entries_support(request internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'memory_entries_support_wrapper'
    LANGUAGE C;
COMMENT ON FUNCTION pgcache.memory_entries_support(internal) IS
    'Tells the planner how many entries a memory cache has; Postgres calls it.';

ALTER FUNCTION pgcache.memory_entries(text) SUPPORT pgcache.memory_entries_support;
