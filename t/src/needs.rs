//! A table of the privileges that each function of the extension needs, with a call that requires them.
//!
//! The table is written by hand. The test of privileges compares it with the extension, and fails for a function that
//! is missing here.

use postgres::Client;

use crate::ask::Ask;

/// The privileges that a function needs.
#[derive(Clone, Copy, PartialEq)]
pub enum Needs {
    /// All of these privileges on the cache.
    All(&'static [&'static str]),
    /// Ownership of the cache, and all of these privileges.
    Owner(&'static [&'static str]),
    /// No privilege on a cache.
    Nothing,
    /// EXECUTE, which PUBLIC lacks.
    Granted,
    /// Nothing can be tested, because the function is a trigger function.
    Trigger,
    /// A privilege on another kind of object, which another test checks.
    Elsewhere,
}

use Needs::*;

pub const READ: Needs = All(&["SELECT"]);
pub const WRITE: Needs = All(&["SELECT", "INSERT", "UPDATE"]);
pub const DELETE: Needs = All(&["DELETE"]);
pub const TAKE: Needs = All(&["SELECT", "DELETE"]);

/// Rows of function, needed privileges, and a call on the cache `$c` that fails only if a privilege is missing.
pub const FUNCTIONS: &[(&str, Needs, &str)] = &[
    ("cache_forever", Nothing, "cache_forever()"),
    ("cache_create", Elsewhere, ""),
    ("cache_schedule_expiry", Elsewhere, ""),
    (
        "cache_alter",
        Owner(&[]),
        "cache_alter($c, ttl => '1 hour')",
    ),
    ("cache_distribute", Elsewhere, ""),
    ("at_key", Elsewhere, ""),
    ("cache_drop", Owner(&[]), "cache_drop($c)"),
    ("cache_attach", Elsewhere, ""),
    ("cache_detach", Owner(&[]), "cache_detach($c)"),
    ("columns", Trigger, "pgcache.columns()"),
    ("cache_clear", All(&["TRUNCATE"]), "cache_clear($c)"),
    ("cache_get", READ, "cache_get('k', $c)"),
    ("cache_get_json", READ, "cache_get_json('k', $c)"),
    ("cache_get_bytes", READ, "cache_get_bytes('k', $c)"),
    ("cache_lookup", READ, "cache_lookup('k', $c)"),
    ("cache_lookup_bytes", READ, "cache_lookup_bytes('k', $c)"),
    ("cache_exists", READ, "cache_exists('k', $c)"),
    ("cache_ttl", READ, "cache_ttl('k', $c)"),
    ("cache_scan", READ, "count(*) FROM cache_scan(cache => $c)"),
    (
        "cache_scan_bytes",
        READ,
        "count(*) FROM cache_scan_bytes(cache => $c)",
    ),
    ("cache_keys", READ, "count(*) FROM cache_keys(cache => $c)"),
    ("cache_count", READ, "cache_count($c)"),
    (
        "cache_lookup_many",
        READ,
        "count(*) FROM cache_lookup_many('{k,l}', $c)",
    ),
    (
        "cache_lookup_many_bytes",
        READ,
        "count(*) FROM cache_lookup_many_bytes('{k,l}', $c)",
    ),
    (
        "cache_get_many",
        READ,
        "count(*) FROM cache_get_many('{k,l}', $c)",
    ),
    (
        "cache_get_many_bytes",
        READ,
        "count(*) FROM cache_get_many_bytes('{k}', $c)",
    ),
    ("cache_set", WRITE, "cache_set('k', '1', cache => $c)"),
    (
        "cache_set_json",
        WRITE,
        "cache_set_json('k', '1', cache => $c)",
    ),
    (
        "cache_set_bytes",
        WRITE,
        "cache_set_bytes('k', '1', cache => $c)",
    ),
    (
        "cache_set_many",
        WRITE,
        "cache_set_many('{k}', '{1}', cache => $c)",
    ),
    (
        "cache_set_many_bytes",
        WRITE,
        "cache_set_many_bytes('{k}', '{1}', cache => $c)",
    ),
    ("cache_add", WRITE, "cache_add('k', '1', cache => $c)"),
    (
        "cache_replace",
        WRITE,
        "cache_replace('k', '1', cache => $c)",
    ),
    ("cache_cas", WRITE, "cache_cas('k', '1', '1', cache => $c)"),
    (
        "cache_add_bytes",
        WRITE,
        "cache_add_bytes('k', '1', cache => $c)",
    ),
    (
        "cache_replace_bytes",
        WRITE,
        "cache_replace_bytes('k', '1', cache => $c)",
    ),
    (
        "cache_cas_bytes",
        WRITE,
        "cache_cas_bytes('k', '1', '1', cache => $c)",
    ),
    ("cache_incr", WRITE, "cache_incr('n', 0, cache => $c)"),
    (
        "cache_incr_existing",
        WRITE,
        "cache_incr_existing('n', 0, $c)",
    ),
    ("cache_touch", WRITE, "cache_touch('k', '1 hour', $c)"),
    ("cache_persist", WRITE, "cache_persist('k', $c)"),
    (
        "cache_get_touch",
        WRITE,
        "cache_get_touch('k', '1 hour', $c)",
    ),
    (
        "cache_get_touch_bytes",
        WRITE,
        "cache_get_touch_bytes('k', '1 hour', $c)",
    ),
    ("cache_delete", DELETE, "cache_delete('k', $c)"),
    (
        "cache_delete_many",
        DELETE,
        "cache_delete_many('{k,l}', $c)",
    ),
    (
        "cache_delete_prefix",
        DELETE,
        "cache_delete_prefix('k', $c)",
    ),
    ("cache_expire", DELETE, "cache_expire($c)"),
    ("cache_delete_if", TAKE, "cache_delete_if('k', '1', $c)"),
    (
        "cache_delete_if_bytes",
        TAKE,
        "cache_delete_if_bytes('k', '1', $c)",
    ),
    ("cache_take", TAKE, "cache_take('k', $c)"),
    ("cache_take_bytes", TAKE, "cache_take_bytes('k', $c)"),
    (
        "cache_fetch",
        WRITE,
        "cache_fetch('k', 'SELECT 1', cache => $c)",
    ),
    (
        "cache_fetch_json",
        WRITE,
        "cache_fetch_json('k', 'SELECT ''1''::jsonb', cache => $c)",
    ),
    (
        "cache_fetch_bytes",
        WRITE,
        "cache_fetch_bytes('k', 'SELECT ''1''::bytea', cache => $c)",
    ),
    ("cache_lease", READ, "cache_lease('k', cache => $c)"),
    (
        "cache_lease_bytes",
        READ,
        "cache_lease_bytes('k', cache => $c)",
    ),
    (
        "cache_set_leased",
        WRITE,
        "cache_set_leased('k', '1', 1, cache => $c)",
    ),
    (
        "cache_set_leased_bytes",
        WRITE,
        "cache_set_leased_bytes('k', '1', 1, cache => $c)",
    ),
    (
        "cache_rate_limit",
        WRITE,
        "cache_rate_limit('r', 1000000, '1 hour', $c)",
    ),
    ("cache_watch", Owner(&[]), "cache_watch($c)"),
    ("cache_unwatch", Owner(&[]), "cache_unwatch($c)"),
    ("cache_settings", READ, "pgcache.cache_settings($c)"),
    ("verify", READ, "count(*) FROM pgcache.verify($c)"),
    ("node_of", READ, "pgcache.node_of($c, 'k', 3)"),
    ("counter_sum", Nothing, "pgcache.counter_sum('1', 1)"),
    ("memory_entries", Elsewhere, ""),
    ("memory_entries_support", Elsewhere, ""),
    ("cache_release", READ, "cache_release('k', 1, $c)"),
    (
        "cache_tune",
        Owner(&[]),
        "cache_tune($c, negative_ttl => '1 hour')",
    ),
    ("cache_depend", Elsewhere, ""),
    ("cache_undepend", Elsewhere, ""),
    ("refresh_settings", READ, "pgcache.refresh_settings($c)"),
    ("touch_after", READ, "pgcache.touch_after($c)"),
    ("share", READ, "pgcache.share($c)"),
    ("hiding", READ, "pgcache.hiding($c)"),
    ("put_default", Owner(&[]), "pgcache.put_default($c)"),
    ("live", Nothing, "pgcache.live('infinity')"),
    ("live_unix", Nothing, "pgcache.live_unix(1, 1)"),
    ("live_support", Elsewhere, ""),
    ("renew", Nothing, "pgcache.renew('k', $c, NULL)"),
    ("renew_copied", Nothing, "pgcache.renew_copied('k', $c)"),
    (
        "copied_first",
        Nothing,
        "pgcache.copied_first('k', 1, false)",
    ),
    ("copied_again", Nothing, "pgcache.copied_again(ROW(1), 1)"),
    ("renew_row", Trigger, "pgcache.renew_row()"),
    ("depends", Nothing, "pgcache.depends($c, 'k')"),
    ("table_path_taken", Nothing, "pgcache.table_path_taken()"),
    ("invalidate", Trigger, "pgcache.invalidate()"),
    ("invalidate_all", Trigger, "pgcache.invalidate_all()"),
    ("record", Trigger, "pgcache.record()"),
    ("record_truncate", Trigger, "pgcache.record_truncate()"),
    ("reserve", Trigger, "pgcache.reserve()"),
    ("figures", Granted, "count(*) FROM pgcache.figures()"),
    (
        "sweep_figures",
        Granted,
        "count(*) FROM pgcache.sweep_figures()",
    ),
    ("tier_figures", Granted, "pgcache.tier_figures()"),
    ("expire_for", Nothing, "pgcache.expire_for('1 ms')"),
    ("tier_shares", Granted, "pgcache.tier_shares()"),
    (
        "verify_dependencies",
        Granted,
        "count(*) FROM pgcache.verify_dependencies()",
    ),
    (
        "resp_clients_now",
        Nothing,
        "count(*) FROM pgcache.resp_clients_now()",
    ),
    ("resp_kill", Nothing, "pgcache.resp_kill(0)"),
    (
        "resp_figures",
        Granted,
        "count(*) FROM pgcache.resp_figures()",
    ),
    (
        "resp_memory",
        Granted,
        "count(*) FROM pgcache.resp_memory()",
    ),
    ("publish", Granted, "pgcache.publish('c', 'm')"),
    ("reset_stats", Granted, "pgcache.reset_stats()"),
    (
        "tell_what_is_missing",
        Granted,
        "pgcache.tell_what_is_missing()",
    ),
];

/// Functions that raise 55000 for every caller if the server lacks pgcache's shared memory.
const WITH_PRELOAD_ONLY: [&str; 5] = [
    "cache_lease",
    "cache_lease_bytes",
    "cache_set_leased",
    "cache_set_leased_bytes",
    "cache_release",
];

/// Returns the table's rows for functions that this extension has and this server can run.
pub fn present(session: &mut Client) -> Vec<(&'static str, Needs, &'static str)> {
    let there = functions_of_the_extension(session);
    let preloaded = session
        .text("SHOW shared_preload_libraries")
        .contains("pgcache");
    let can_run = |(name, ..): &&(&str, Needs, &str)| {
        there.iter().any(|function| function == name)
            && (preloaded || !WITH_PRELOAD_ONLY.contains(name))
    };
    FUNCTIONS.iter().filter(can_run).copied().collect()
}

/// Returns the bare names of all functions of the extension.
pub fn functions_of_the_extension(session: &mut Client) -> Vec<String> {
    session.lines(
        "SELECT DISTINCT p.proname FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid \
         JOIN pg_extension e ON e.oid = d.refobjid WHERE d.classid = 'pg_proc'::regclass \
         AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'pgcache' ORDER BY 1",
    )
}
