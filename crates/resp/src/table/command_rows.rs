//! The rows of the command table, sorted by name. A test compares them with the commands of the Redis that is installed
//! on the machine.
//!
//! A row consists of name, arity, flags, first key, last key, step, categories that do not follow from the flags,
//! since, group, subcommands. Instead of the key positions, `numkeys 2 1` means that argument 2 is the number of keys,
//! which follow it with a step of 1. The kind and the rules of this server, if any, come after the group:
//! `Read[LIGHT]`.

use super::row_type::{Counted, Entry, Handler, Keys, Kind, category, flag, rule};

macro_rules! rows {
    ($($name:literal $arity:literal [$($flag:ident)*]
        $first:literal $last:literal $step:literal $(numkeys $count:literal $each:literal)?
        [$($category:ident)*] $since:literal $group:ident $($kind:ident[$($rule:ident)*])? {$($subcommands:tt)*};)*) => {
        &[$(Entry {
            name: $name,
            arity: $arity,
            flags: 0 $(| flag::$flag)*,
            categories: 0 $(| category::$category)*,
            keys: Keys {
                first: $first,
                last: $last,
                step: $step,
                counted: first!($(Some(Counted { at: $count, step: $each }))?, None),
            },
            kind: first!($(Kind::$kind)?, Kind::NoEntries),
            handler: Handler::of($name, first!($(Kind::$kind)?, Kind::NoEntries), stringify!($group)),
            rules: 0 $($(| rule::$rule)*)?,
            since: $since,
            group: stringify!($group),
            subcommands: rows! { $($subcommands)* },
        }),*]
    };
}

/// Expands to the first expression if it is given, otherwise to the second.
macro_rules! first {
    (, $other:expr) => {
        $other
    };
    ($one:expr, $other:expr) => {
        $one
    };
}

/// Every command that the server supports.
pub static TABLE: &[Entry] = rows! {
    "acl"              -2 [] 0 0 0 [] "6.0.0" server {
        "acl|help"          2 [LOADING STALE] 0 0 0 [] "6.0.0" server {};
        "acl|whoami"        2 [NOSCRIPT LOADING STALE] 0 0 0 [] "6.0.0" server {};
    };
    "append"            3 [WRITE DENYOOM FAST] 1 1 1 [STRING] "2.0.0" string Write[] {};
    "asking"            1 [FAST] 0 0 0 [CONNECTION] "3.0.0" cluster {};
    "auth"             -2 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] 0 0 0 [CONNECTION] "1.0.0" connection {};
    "client"           -2 [] 0 0 0 [] "2.4.0" connection {
        "client|caching"    3 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "6.0.0" connection {};
        "client|getname"    2 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "2.6.9" connection {};
        "client|getredir"   2 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "6.0.0" connection {};
        "client|help"       2 [LOADING STALE] 0 0 0 [CONNECTION] "5.0.0" connection {};
        "client|id"         2 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "5.0.0" connection {};
        "client|info"       2 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "6.2.0" connection NoEntries[DESCRIBES] {};
        "client|kill"      -3 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "2.4.0" connection NoEntries[MAY_BE_SLOW] {};
        "client|list"      -2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "2.4.0" connection NoEntries[DESCRIBES] {};
        "client|no-evict"   3 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "7.0.0" connection {};
        "client|no-touch"   3 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "7.2.0" connection {};
        "client|pause"     -3 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "2.9.50" connection {};
        "client|reply"      3 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "3.2.0" connection {};
        "client|setinfo"    4 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "7.2.0" connection {};
        "client|setname"    3 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "2.6.9" connection {};
        "client|tracking"  -3 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "6.0.0" connection {};
        "client|trackinginfo"   2 [NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "6.2.0" connection {};
        "client|unpause"    2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [CONNECTION] "6.2.0" connection NoEntries[UNPAUSED] {};
    };
    "cluster"          -2 [] 0 0 0 [] "3.0.0" cluster {
        "cluster|addslots"     -3 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|addslotsrange" -4 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "7.0.0" cluster {};
        "cluster|bumpepoch"     2 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|count-failure-reports"  3 [ADMIN STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|countkeysinslot"  3 [STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|delslots"     -3 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|delslotsrange" -4 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "7.0.0" cluster {};
        "cluster|failover"     -2 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|flushslots"    2 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|forget"        3 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|getkeysinslot"  4 [STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|help"          2 [LOADING STALE] 0 0 0 [] "5.0.0" cluster {};
        "cluster|info"          2 [STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|keyslot"       3 [STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|links"         2 [STALE] 0 0 0 [] "7.0.0" cluster {};
        "cluster|meet"         -4 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|myid"          2 [STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|myshardid"     2 [STALE] 0 0 0 [] "7.2.0" cluster {};
        "cluster|nodes"         2 [STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|replicas"      3 [ADMIN STALE] 0 0 0 [] "5.0.0" cluster {};
        "cluster|replicate"     3 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|reset"        -2 [ADMIN NOSCRIPT STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|saveconfig"    2 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|set-config-epoch"  3 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|setslot"      -4 [ADMIN STALE NO_ASYNC_LOADING] 0 0 0 [] "3.0.0" cluster {};
        "cluster|shards"        2 [LOADING STALE] 0 0 0 [] "7.0.0" cluster {};
        "cluster|slaves"        3 [ADMIN STALE] 0 0 0 [] "3.0.0" cluster {};
        "cluster|slots"         2 [LOADING STALE] 0 0 0 [] "3.0.0" cluster {};
    };
    "command"          -1 [LOADING STALE] 0 0 0 [CONNECTION] "2.8.13" server NoEntries[DESCRIBES] {
        "command|count"     2 [LOADING STALE] 0 0 0 [CONNECTION] "2.8.13" server NoEntries[DESCRIBES] {};
        "command|docs"     -2 [LOADING STALE] 0 0 0 [CONNECTION] "7.0.0" server NoEntries[DESCRIBES] {};
        "command|getkeys"  -3 [LOADING STALE] 0 0 0 [CONNECTION] "2.8.13" server NoEntries[DESCRIBES] {};
        "command|help"      2 [LOADING STALE] 0 0 0 [CONNECTION] "5.0.0" server NoEntries[DESCRIBES] {};
        "command|info"     -2 [LOADING STALE] 0 0 0 [CONNECTION] "2.8.13" server NoEntries[DESCRIBES] {};
        "command|list"     -2 [LOADING STALE] 0 0 0 [CONNECTION] "7.0.0" server NoEntries[DESCRIBES] {};
    };
    "config"           -2 [] 0 0 0 [] "2.0.0" server {
        "config|get"       -3 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.0.0" server NoEntries[DESCRIBES] {};
        "config|help"       2 [LOADING STALE] 0 0 0 [] "5.0.0" server NoEntries[DESCRIBES] {};
        "config|resetstat"   2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.0.0" server {};
    };
    "copy"             -3 [WRITE DENYOOM] 1 2 1 [KEYSPACE] "6.2.0" generic Write[ATOMIC NAMES_DATABASE] {};
    "dbsize"            1 [READONLY FAST] 0 0 0 [KEYSPACE] "1.0.0" server Long[] {};
    "decr"              2 [WRITE DENYOOM FAST] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "decrby"            3 [WRITE DENYOOM FAST] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "del"              -2 [WRITE] 1 -1 1 [KEYSPACE] "1.0.0" generic Write[LIGHT] {};
    "delex"            -2 [WRITE FAST] 1 1 1 [STRING] "8.4.0" string Write[LOADS] {};
    "delifeq"           3 [WRITE FAST] 1 1 1 [STRING] "9.0.0" string Write[LOADS] {};
    "digest"            2 [READONLY FAST] 1 1 1 [STRING] "8.4.0" string Read[COPIES LOADS] {};
    "discard"           1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] 0 0 0 [TRANSACTION] "2.0.0" transactions NoEntries[UNQUEUED] {};
    "echo"              2 [LOADING STALE FAST] 0 0 0 [CONNECTION] "1.0.0" connection NoEntries[LIGHT IN_TABLE_EXEC] {};
    "eval"             -3 [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS MOVABLEKEYS] 0 0 0 numkeys 2 1 [SCRIPTING] "2.6.0" scripting Write[LOADS ATOMIC MAY_WRITE] {};
    "evalsha"          -3 [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS MOVABLEKEYS] 0 0 0 numkeys 2 1 [SCRIPTING] "2.6.0" scripting Write[LOADS ATOMIC MAY_WRITE] {};
    "exec"              1 [NOSCRIPT LOADING STALE SKIP_SLOWLOG] 0 0 0 [TRANSACTION] "1.2.0" transactions NoEntries[ATOMIC UNQUEUED RUNS_QUEUE] {};
    "exists"           -2 [READONLY FAST] 1 -1 1 [KEYSPACE] "1.0.0" generic Read[LIGHT COPIES] {};
    "expire"           -3 [WRITE FAST] 1 1 1 [KEYSPACE] "1.0.0" generic Write[LIGHT] {};
    "expireat"         -3 [WRITE FAST] 1 1 1 [KEYSPACE] "1.2.0" generic Write[LIGHT] {};
    "expiretime"        2 [READONLY FAST] 1 1 1 [KEYSPACE] "7.0.0" generic Read[COPIES] {};
    "flushall"         -1 [WRITE] 0 0 0 [KEYSPACE DANGEROUS] "1.0.0" server Long[] {};
    "flushdb"          -1 [WRITE] 0 0 0 [KEYSPACE DANGEROUS] "1.0.0" server Long[] {};
    "get"               2 [READONLY FAST] 1 1 1 [STRING] "1.0.0" string Read[LIGHT COPIES LOADS] {};
    "getdel"            2 [WRITE FAST] 1 1 1 [STRING] "6.2.0" string Write[LIGHT LOADS] {};
    "getex"            -2 [WRITE FAST] 1 1 1 [STRING] "6.2.0" string Write[LIGHT LOADS] {};
    "getrange"          4 [READONLY] 1 1 1 [STRING] "2.4.0" string Read[COPIES LOADS] {};
    "getset"            3 [WRITE DENYOOM FAST] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "hello"            -1 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] 0 0 0 [CONNECTION] "6.0.0" connection NoEntries[GREETS] {};
    "incr"              2 [WRITE DENYOOM FAST] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "incrby"            3 [WRITE DENYOOM FAST] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "incrbyfloat"       3 [WRITE DENYOOM FAST] 1 1 1 [STRING] "2.6.0" string Write[] {};
    "increx"           -2 [WRITE DENYOOM FAST] 1 1 1 [STRING] "8.8.0" string Write[LIGHT] {};
    "info"             -1 [LOADING STALE] 0 0 0 [DANGEROUS] "1.0.0" server NoEntries[DESCRIBES] {};
    "keys"              2 [READONLY] 0 0 0 [KEYSPACE DANGEROUS] "1.0.0" generic Long[] {};
    "lastsave"          1 [LOADING STALE FAST] 0 0 0 [ADMIN DANGEROUS] "1.0.0" server {};
    "latency"          -2 [] 0 0 0 [] "2.8.13" server {
        "latency|doctor"    2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.8.13" server NoEntries[DESCRIBES] {};
        "latency|graph"     3 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.8.13" server NoEntries[DESCRIBES] {};
        "latency|help"      2 [LOADING STALE] 0 0 0 [] "2.8.13" server NoEntries[DESCRIBES] {};
        "latency|histogram" -2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "7.0.0" server NoEntries[DESCRIBES] {};
        "latency|history"   3 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.8.13" server NoEntries[DESCRIBES] {};
        "latency|latest"    2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.8.13" server NoEntries[DESCRIBES] {};
        "latency|reset"    -2 [ADMIN NOSCRIPT LOADING STALE] 0 0 0 [] "2.8.13" server {};
    };
    "memory"           -2 [] 0 0 0 [] "4.0.0" server {
        "memory|help"       2 [LOADING STALE] 0 0 0 [] "4.0.0" server {};
        "memory|usage"     -3 [READONLY] 2 2 1 [] "4.0.0" server Read[] {};
    };
    "mget"             -2 [READONLY FAST] 1 -1 1 [STRING] "1.0.0" string Read[LIGHT COPIES LOADS] {};
    "mset"             -3 [WRITE DENYOOM] 1 -1 2 [STRING] "1.0.1" string Write[LIGHT] {};
    "msetex"           -4 [WRITE DENYOOM MOVABLEKEYS] 0 0 0 numkeys 1 2 [STRING] "8.4.0" string Write[ATOMIC] {};
    "msetnx"           -3 [WRITE DENYOOM] 1 -1 2 [STRING] "1.0.1" string Write[ATOMIC] {};
    "multi"             1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] 0 0 0 [TRANSACTION] "1.2.0" transactions NoEntries[LIGHT UNQUEUED] {};
    "object"           -2 [] 0 0 0 [] "2.2.3" generic {
        "object|encoding"   3 [READONLY] 2 2 1 [KEYSPACE] "2.2.3" generic Read[LOADS] {};
        "object|freq"       3 [READONLY] 2 2 1 [KEYSPACE] "4.0.0" generic Read[] {};
        "object|help"       2 [LOADING STALE] 0 0 0 [KEYSPACE] "6.2.0" generic {};
        "object|idletime"   3 [READONLY] 2 2 1 [KEYSPACE] "2.2.3" generic Read[] {};
        "object|refcount"   3 [READONLY] 2 2 1 [KEYSPACE] "2.2.3" generic Read[] {};
    };
    "persist"           2 [WRITE FAST] 1 1 1 [KEYSPACE] "2.2.0" generic Write[] {};
    "pexpire"          -3 [WRITE FAST] 1 1 1 [KEYSPACE] "2.6.0" generic Write[LIGHT] {};
    "pexpireat"        -3 [WRITE FAST] 1 1 1 [KEYSPACE] "2.6.0" generic Write[LIGHT] {};
    "pexpiretime"       2 [READONLY FAST] 1 1 1 [KEYSPACE] "7.0.0" generic Read[COPIES] {};
    "ping"             -1 [FAST] 0 0 0 [CONNECTION] "1.0.0" connection NoEntries[LIGHT IN_TABLE_EXEC] {};
    "psetex"            4 [WRITE DENYOOM] 1 1 1 [STRING] "2.6.0" string Write[LIGHT] {};
    "psubscribe"       -2 [PUBSUB NOSCRIPT LOADING STALE] 0 0 0 [] "2.0.0" pubsub NoEntries[SUBSCRIBES] {};
    "pttl"              2 [READONLY FAST] 1 1 1 [KEYSPACE] "2.6.0" generic Read[LIGHT COPIES] {};
    "publish"           3 [PUBSUB LOADING STALE FAST] 0 0 0 [] "2.0.0" pubsub NoEntries[MAY_WRITE MAY_BE_SLOW IN_TABLE_EXEC] {};
    "pubsub"           -2 [] 0 0 0 [] "2.8.0" pubsub {
        "pubsub|channels"  -2 [PUBSUB LOADING STALE] 0 0 0 [] "2.8.0" pubsub NoEntries[DESCRIBES] {};
        "pubsub|help"       2 [LOADING STALE] 0 0 0 [] "6.2.0" pubsub NoEntries[DESCRIBES] {};
        "pubsub|numpat"     2 [PUBSUB LOADING STALE] 0 0 0 [] "2.8.0" pubsub NoEntries[DESCRIBES] {};
        "pubsub|numsub"    -2 [PUBSUB LOADING STALE] 0 0 0 [] "2.8.0" pubsub NoEntries[DESCRIBES] {};
    };
    "punsubscribe"     -1 [PUBSUB NOSCRIPT LOADING STALE] 0 0 0 [] "2.0.0" pubsub NoEntries[SUBSCRIBES] {};
    "quit"             -1 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] 0 0 0 [CONNECTION] "1.0.0" connection NoEntries[UNQUEUED] {};
    "randomkey"         1 [READONLY] 0 0 0 [KEYSPACE] "1.0.0" generic Long[] {};
    "readonly"          1 [LOADING STALE FAST] 0 0 0 [CONNECTION] "3.0.0" cluster {};
    "readwrite"         1 [LOADING STALE FAST] 0 0 0 [CONNECTION] "3.0.0" cluster {};
    "rename"            3 [WRITE] 1 2 1 [KEYSPACE] "1.0.0" generic Write[ATOMIC] {};
    "renamenx"          3 [WRITE FAST] 1 2 1 [KEYSPACE] "1.0.0" generic Write[ATOMIC] {};
    "reset"             1 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] 0 0 0 [CONNECTION] "6.2.0" connection NoEntries[UNQUEUED] {};
    "scan"             -2 [READONLY] 0 0 0 [KEYSPACE] "2.8.0" generic Long[] {};
    "script"           -2 [] 0 0 0 [] "2.6.0" scripting {
        "script|exists"    -3 [NOSCRIPT] 0 0 0 [SCRIPTING] "2.6.0" scripting {};
        "script|flush"     -2 [NOSCRIPT] 0 0 0 [SCRIPTING] "2.6.0" scripting {};
        "script|help"       2 [LOADING STALE] 0 0 0 [SCRIPTING] "5.0.0" scripting {};
        "script|load"       3 [NOSCRIPT STALE] 0 0 0 [SCRIPTING] "2.6.0" scripting {};
    };
    "select"            2 [LOADING STALE FAST] 0 0 0 [CONNECTION] "1.0.0" connection NoEntries[NAMES_DATABASE] {};
    "set"              -3 [WRITE DENYOOM] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "setex"             4 [WRITE DENYOOM] 1 1 1 [STRING] "2.0.0" string Write[LIGHT] {};
    "setnx"             3 [WRITE DENYOOM FAST] 1 1 1 [STRING] "1.0.0" string Write[LIGHT] {};
    "setrange"          4 [WRITE DENYOOM] 1 1 1 [STRING] "2.2.0" string Write[] {};
    "slowlog"          -2 [] 0 0 0 [] "2.2.12" server {
        "slowlog|get"      -2 [ADMIN LOADING STALE] 0 0 0 [] "2.2.12" server NoEntries[DESCRIBES] {};
        "slowlog|help"      2 [LOADING STALE] 0 0 0 [] "6.2.0" server NoEntries[DESCRIBES] {};
        "slowlog|len"       2 [ADMIN LOADING STALE] 0 0 0 [] "2.2.12" server NoEntries[DESCRIBES] {};
        "slowlog|reset"     2 [ADMIN LOADING STALE] 0 0 0 [] "2.2.12" server {};
    };
    "strlen"            2 [READONLY FAST] 1 1 1 [STRING] "2.2.0" string Read[LIGHT COPIES] {};
    "subscribe"        -2 [PUBSUB NOSCRIPT LOADING STALE] 0 0 0 [] "2.0.0" pubsub NoEntries[SUBSCRIBES] {};
    "substr"            4 [READONLY] 1 1 1 [STRING] "1.0.0" string Read[COPIES LOADS] {};
    "time"              1 [LOADING STALE FAST] 0 0 0 [] "2.6.0" server {};
    "touch"            -2 [READONLY FAST] 1 -1 1 [KEYSPACE] "3.2.1" generic Read[] {};
    "ttl"               2 [READONLY FAST] 1 1 1 [KEYSPACE] "1.0.0" generic Read[LIGHT COPIES] {};
    "type"              2 [READONLY FAST] 1 1 1 [KEYSPACE] "1.0.0" generic Read[COPIES] {};
    "unlink"           -2 [WRITE FAST] 1 -1 1 [KEYSPACE] "4.0.0" generic Write[LIGHT] {};
    "unsubscribe"      -1 [PUBSUB NOSCRIPT LOADING STALE] 0 0 0 [] "2.0.0" pubsub NoEntries[SUBSCRIBES] {};
    "unwatch"           1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] 0 0 0 [TRANSACTION] "2.2.0" transactions {};
    "wait"              3 [BLOCKING] 0 0 0 [CONNECTION] "3.0.0" generic {};
    "watch"            -2 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] 1 -1 1 [TRANSACTION] "2.2.0" transactions Watch[LIGHT UNQUEUED] {};
};
