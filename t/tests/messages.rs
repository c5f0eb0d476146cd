//! Tests messages: the text and hint of each error, the GRANT in the hint for a missing privilege, and notices about
//! names and about features that a server lacks. Also tests that no message shows a part of a key or a value.

use std::sync::mpsc::Receiver;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::needs::{FUNCTIONS, Needs, functions_of_the_extension};
use pgcache_tests::readme::page;
use pgcache_tests::refusal::refused;
use pgcache_tests::tier::PRELOAD;
use postgres::Client;
use postgres::error::DbError;

/// Creates the objects for the calls below.
const SETUP: &str = "
    SELECT cache_create('c'), cache_create('j', value_type => 'jsonb'), cache_create('b', value_type => 'bytea'),
           cache_create('broken'), cache_create('guarded'), cache_create('m', storage => 'memory');
    SELECT cache_set('max', '9223372036854775807', cache => 'c'), cache_set('word', 'x', cache => 'c'),
           cache_set_bytes('k', '\\xff', cache => 'b');
    ALTER TABLE broken DROP COLUMN value;
    CREATE TABLE source (id int, name text);
    CREATE TRIGGER by_hand AFTER DELETE ON source FOR EACH ROW EXECUTE FUNCTION pgcache.invalidate();
    INSERT INTO source VALUES (1, 'x');
    CREATE TABLE numbered (key bigint PRIMARY KEY, value text);
    CREATE TABLE generated (key text PRIMARY KEY, value text GENERATED ALWAYS AS ('v') STORED);
    CREATE TABLE short (key varchar(3) PRIMARY KEY, value text);
    SELECT cache_attach('numbered'), cache_attach('generated'), cache_attach('short');
    CREATE UNLOGGED TABLE fleeting (k text);
    SELECT cache_create('kept', storage => 'logged');
    CREATE FUNCTION fetch_again(key text) RETURNS text LANGUAGE sql AS
        $$SELECT cache_fetch(key, 'SELECT fetch_again($1)', cache => 'c')$$;
    CREATE FUNCTION without_extension() RETURNS text LANGUAGE plpgsql AS
        $$BEGIN DROP EXTENSION pgcache CASCADE; RETURN '* * * * *'; END$$;";

/// Each error of the reference that one session can raise, and the call that raises it.
const RAISED: &[(&str, &str)] = &[
    (
        "extension \"pgcache\" was dropped while the statement ran",
        "SELECT cache_schedule_expiry(without_extension())",
    ),
    (
        "key_expression must not contain …, whose result does not depend on the row alone",
        "SELECT cache_depend('source', 'now()::text', 'c')",
    ),
    (
        "pgcache.main cannot depend on a table",
        "SELECT cache_depend('source', 'name', 'pgcache.main')",
    ),
    (
        "loader returned more than one row",
        "SELECT cache_fetch('k', 'SELECT generate_series(1, 2)')",
    ),
    ("key is too long", "SELECT cache_get(repeat('k', 2049))"),
    (
        "counter is out of range for type bigint",
        "SELECT cache_incr('max', cache => 'c')",
    ),
    (
        "… is a number of bytes and must not be negative",
        "SELECT cache_tune('c', reserve => -1)",
    ),
    (
        "reserve must not be larger than max_bytes",
        "SELECT cache_tune('c', max_bytes => 1, reserve => 2)",
    ),
    (
        "reserves must not hold more than half of the hot tier",
        "SELECT cache_tune('c', reserve => 1000000000000)",
    ),
    (
        "touch_after is for table caches",
        "SELECT cache_tune('m', touch_after => 0.1)",
    ),
    ("… must not be null", "SELECT cache_set(NULL, 'v')"),
    (
        "… must not contain nulls",
        "SELECT cache_set_many('{a,NULL}', '{1,2}')",
    ),
    (
        "value is not valid text in the server encoding",
        "SELECT cache_get('k', 'b')",
    ),
    (
        "early_refresh must not be negative",
        "SELECT cache_tune('c', early_refresh => -1)",
    ),
    (
        "grace must not be negative",
        "SELECT cache_alter('c', grace => '-1 s')",
    ),
    ("key must not be empty", "SELECT cache_get('')"),
    (
        "keys and vals must have the same length",
        "SELECT cache_set_many('{a}', '{}')",
    ),
    (
        "nodes must be positive",
        "SELECT pgcache.node_of('c', 'k', 0)",
    ),
    (
        "shard_count must be positive",
        "SELECT cache_distribute('c', 0)",
    ),
    (
        "max_hits must be positive",
        "SELECT cache_rate_limit('k', 0, '1 s')",
    ),
    (
        "per must be positive",
        "SELECT cache_rate_limit('k', 1, '0')",
    ),
    ("ttl must be positive", "SELECT cache_set('k', 'v', '0')"),
    (
        "ttl_jitter must be between 0 and 1",
        "SELECT cache_tune('c', ttl_jitter => 2)",
    ),
    (
        "touch_after must be between 0 and 0.5",
        "SELECT cache_tune('c', touch_after => 0.6)",
    ),
    (
        "unknown storage \"…\"",
        "SELECT cache_create('x', storage => 'disk')",
    ),
    (
        "value_type is not supported",
        "SELECT cache_create('x', value_type => 'int')",
    ),
    (
        "wait must not be negative",
        "SELECT cache_lease('k', '-1 s')",
    ),
    (
        "… must be a one-dimensional array",
        "SELECT cache_set_many('{{a}}', '{{1}}')",
    ),
    (
        "… must not be negative",
        "SELECT cache_scan(max_rows => -1)",
    ),
    (
        "value is not valid JSON",
        "SELECT cache_set('k', '{', cache => 'j')",
    ),
    (
        "counter value is not an integer",
        "SELECT cache_incr('word', cache => 'c')",
    ),
    (
        "value contains a character that is not valid in jsonb or in the server encoding",
        "SELECT cache_set('k', '\"\\u0000\"', cache => 'j')",
    ),
    (
        "function \"pgcache.…\" was not called by its trigger",
        "SELECT pgcache.record()",
    ),
    (
        "trigger does not name a cache and a key",
        "DELETE FROM source",
    ),
    (
        "key_expression must be a single expression",
        "SELECT cache_depend('source', 'name, name', 'c')",
    ),
    (
        "loader is not a query that returns rows",
        "SELECT cache_fetch('k', 'VACUUM')",
    ),
    (
        "loader must return one column",
        "SELECT cache_fetch('k', 'SELECT 1, 2')",
    ),
    (
        "cache does not depend on table \"…\"",
        "SELECT cache_undepend('source', 'c')",
    ),
    (
        "key_expression must be of type text, not …",
        "SELECT cache_depend('source', 'id', 'c')",
    ),
    (
        "column definition list does not match the function's result",
        "SELECT * FROM pgcache.memory_entries(substring(pg_get_viewdef('m') FROM 'id=[^'']*')) AS e (i int, v text, e timestamptz)",
    ),
    (
        "prefix must be empty for a cache whose keys are not text",
        "SELECT cache_scan('1', cache => 'numbered')",
    ),
    (
        "key is not a value of type …",
        "SELECT cache_get('one', 'numbered')",
    ),
    (
        "key is out of range for type …",
        "SELECT cache_get('98765432109876543210', 'numbered')",
    ),
    (
        "memory cache \"…\" has no table",
        "SELECT cache_detach('m')",
    ),
    (
        "pgcache.main cannot be detached",
        "SELECT cache_detach('pgcache.main')",
    ),
    (
        "cannot write to a cache whose value or deadline column is generated",
        "SELECT cache_set('k', 'v', cache => 'generated')",
    ),
    (
        "key is too long for the table's column",
        "SELECT cache_set('long', 'v', cache => 'short')",
    ),
    (
        "unknown expires_unit \"…\"",
        "SELECT cache_attach('source', key_column => 'id', value_column => 'name', expires_unit => 'h')",
    ),
    (
        "column \"…\" of table \"…\" does not exist",
        "SELECT cache_attach('source')",
    ),
    ("\"…\" is already a cache", "SELECT cache_attach('c')"),
    (
        "cache whose value or deadline column is generated cannot have a default ttl",
        "SELECT cache_alter('generated', ttl => '1 s')",
    ),
    (
        "table \"…\" cannot become a cache",
        "SELECT cache_attach('pgcache.caches')",
    ),
    ("\"…\" is not a cache", "SELECT cache_get('k', 'source')"),
    (
        "relation \"…\" already exists and is not a cache",
        "SELECT cache_create('source', if_not_exists => true)",
    ),
    (
        "\"…\" is not a table",
        "SELECT cache_depend('pgcache.caches', 'storage', 'c')",
    ),
    (
        "\"…\" no longer works as a cache",
        "SELECT cache_get('k', 'broken')",
    ),
    (
        "relation with OID … does not exist",
        "SELECT cache_get('k', 4294967295::oid::regclass)",
    ),
    (
        "memory cache with these settings does not exist",
        "SELECT * FROM pgcache.memory_entries('id=7') AS e (k text, v text, e timestamptz)",
    ),
    ("cache \"…\" already exists", "SELECT cache_create('c')"),
    (
        "key_expression must not contain volatile functions",
        "SELECT cache_depend('source', 'random()::text', 'c')",
    ),
    (
        "a logged cache cannot depend on unlogged table \"…\"",
        "SELECT cache_depend('fleeting', 'k', 'kept')",
    ),
    (
        "loader fetches the key that it loads",
        "SELECT fetch_again('k')",
    ),
    (
        "entry does not fit in the hot tier",
        "SELECT cache_set('k', repeat('v', 2000000), cache => 'm')",
    ),
];

/// The errors that one session can raise on a server without preload, and the calls that raise them.
const RAISED_WITHOUT_PRELOAD: &[(&str, &str)] = &[
    (
        "leases need pgcache's shared memory",
        "SELECT cache_lease('k')",
    ),
    (
        "memory caches need pgcache's shared memory",
        "SELECT cache_create('m', storage => 'memory')",
    ),
];

/// The errors that one call cannot raise, each with the test that raises it.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "cache \"…\" cannot be distributed",
        "t/tests/citus/spread.rs",
        "caches_that_cannot_be_distributed_stay_unchanged",
    ),
    (
        "permission denied to distribute the first cache of this database",
        "t/tests/citus/spread.rs",
        "caches_that_cannot_be_distributed_stay_unchanged",
    ),
    (
        "shard_count must be …, as for the other distributed caches of this database",
        "t/tests/citus/spread.rs",
        "caches_that_cannot_be_distributed_stay_unchanged",
    ),
    (
        "function is not supported on distributed cache \"…\"",
        "t/tests/citus/spread.rs",
        "unsupported_calls_over_shards_raise_a_clear_error",
    ),
    (
        "cannot call the node that holds the entries of cache \"…\" from here",
        "t/tests/citus/spread.rs",
        "calls_computed_on_shards_contact_no_other_node",
    ),
    (
        "call does not have the form that Citus nodes send to each other",
        "t/tests/distributed.rs",
        "without_citus_nothing_is_distributed",
    ),
    (
        "Citus is not installed in this database",
        "t/tests/distributed.rs",
        "without_citus_nothing_is_distributed",
    ),
    (
        "\"…\" is distributed by Citus",
        "t/tests/distributed.rs",
        "every_function_refuses_a_distributed_table_in_sessions_that_know_it_as_a_cache",
    ),
    (
        "text that looks like a bytea literal is interpreted as plain text",
        "t/tests/messages.rs",
        "a_text_that_looks_like_a_bytea_literal_raises_a_notice",
    ),
    (
        "cannot PREPARE a transaction that has published messages",
        "t/tests/resp_publish.rs",
        "messages_that_cannot_be_sent_are_refused",
    ),
    (
        "permission denied to reserve a part of the hot tier",
        "t/tests/shares.rs",
        "only_roles_with_the_right_reserve",
    ),
    (
        "permission denied to terminate a client of the Redis protocol",
        "t/tests/resp_views.rs",
        "a_client_is_ended_only_by_privileged_roles",
    ),
    (
        "name of the channel is too long",
        "t/tests/resp_patterns.rs",
        "a_message_of_sql_that_many_patterns_compare_stalls_no_client",
    ),
    (
        "too many messages in one transaction",
        "t/tests/resp_publish.rs",
        "messages_that_cannot_be_sent_are_refused",
    ),
    (
        "rows on which entries depend were changed while the transaction was being prepared",
        "t/tests/coherence_writer.rs",
        "writes_before_prepare_transaction_count",
    ),
    (
        "too many prepared transactions have written to caches",
        "t/tests/prepared.rs",
        "transactions_that_find_no_record_are_refused",
    ),
    (
        "entries of cache \"…\" depend on changed rows and can no longer be removed",
        "t/tests/last_moment.rs",
        "closing_all_cursors_keeps_entries_only_where_triggers_would_run_too_late",
    ),
    (
        "pg_cron is installed only in database \"…\"",
        "t/tests/cron.rs",
        "the_real_pg_cron_expires_caches_in_its_own_and_in_other_databases",
    ),
    (
        "pg_cron is not installed",
        "t/tests/cron.rs",
        "without_pg_cron_scheduling_is_refused_with_a_way_out",
    ),
    (
        "row-level security of the cache applies to the owner of the source table",
        "t/tests/messages.rs",
        "the_warnings_of_a_dependency_under_policies_and_of_a_child_name_a_remedy",
    ),
    (
        "table \"…\" has a different owner than its parent table, on which a cache depends",
        "t/tests/messages.rs",
        "the_warnings_of_a_dependency_under_policies_and_of_a_child_name_a_remedy",
    ),
    (
        "trigger \"…\" would run code of role \"…\" as the owner of cache \"…\"",
        "t/tests/user_triggers.rs",
        "a_refused_removal_names_the_role_of_the_trigger",
    ),
    (
        "condition of trigger \"…\" may run code of any role as the owner of cache \"…\"",
        "t/tests/user_triggers.rs",
        "a_condition_that_may_run_anything_counts_as_user_defined_code",
    ),
    (
        "out of memory",
        "t/tests/out_of_memory.rs",
        "a_backend_without_memory_raises_an_error_and_lives_on",
    ),
    (
        "pgcache.hot_size requests … MB of shared memory, which the system cannot provide",
        "t/tests/faults.rs",
        "a_server_that_does_not_get_its_shared_memory_names_the_setting",
    ),
    (
        "memory caches are disabled",
        "t/tests/enabled.rs",
        "off_bypasses_the_tier_and_refuses_memory_caches",
    ),
    (
        "pgcache.hot_size requests … MB of huge pages, which the system cannot provide",
        "t/tests/faults.rs",
        "a_server_that_does_not_get_its_huge_pages_names_the_setting",
    ),
    (
        "too many caches for the hot tier",
        "t/tests/coherence_limits.rs",
        "more_caches_than_slots_stay_right",
    ),
    (
        "definition of the cache changed while a statement used it",
        "t/tests/hostile_role.rs",
        "a_schema_that_takes_the_name_of_another_gets_nothing_of_an_owners_rights",
    ),
    (
        "extension \"pgcache\" in this database is older than the server's library",
        "t/tests/older_extension.rs",
        "newer_functions_are_refused_with_the_update_command",
    ),
    (
        "canceling statement due to lock timeout",
        "t/tests/resp_exec_tables.rs",
        "lock_timeout_ends_the_wait_of_a_commit_for_exec",
    ),
];

/// An error, as docs/reference.md describes it.
struct Documented {
    state: String,
    message: String,
    hint: String,
}

fn documented() -> Vec<Documented> {
    let page = page("docs/reference.md");
    let (_, table) = page
        .split_once("\n### Errors of pgcache\n")
        .expect("the page has the errors");
    let table = table.split("\n###").next().unwrap_or_default();
    table.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Documented> {
    let (state, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
    let (message, rest) = rest.split_once("` |")?;
    let (_, hint) = rest.trim_end_matches(" |").rsplit_once("| ")?;
    Some(Documented {
        state: state.into(),
        message: message.into(),
        hint: hint.into(),
    })
}

/// Returns whether a text matches a pattern, in which an ellipsis stands for any text.
fn fits(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        open = part.is_empty();
    }
    rest.is_empty() || open
}

fn raise(session: &mut Client, errors: &[(&str, &str)]) {
    let page = documented();
    for (message, call) in errors {
        let row = page.iter().find(|row| row.message == *message);
        let row = row.unwrap_or_else(|| panic!("the page has no error {message}"));
        let error = refused(session.try_lines(call), &row.state);
        assert!(fits(error.message(), message), "{call}: {error:?}");
        let hint = error.hint().unwrap_or_else(|| panic!("no hint: {error:?}"));
        assert!(fits(hint, &row.hint), "{call}: {error:?}");
    }
}

#[test]
fn each_error_matches_the_reference() {
    let mut session = Cluster::hot().database().connect();
    session.run(SETUP);
    raise(&mut session, RAISED);
}

#[test]
fn without_preload_errors_match_the_reference() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    raise(&mut cluster.database().connect(), RAISED_WITHOUT_PRELOAD);
}

#[test]
fn every_error_of_the_reference_is_raised_by_a_test() {
    let raised = RAISED.iter().chain(RAISED_WITHOUT_PRELOAD);
    let mut known: Vec<&str> = raised.map(|(message, _)| *message).collect();
    for (message, file, test) in ELSEWHERE {
        assert!(
            page(file).contains(&format!("fn {test}()")),
            "{file}: {test}"
        );
        known.push(message);
    }
    let warned = page("expected/bytes.out");
    let page = documented();
    assert!(page.len() > 40, "{} errors were found", page.len());
    for row in &page {
        if row.state == "01000" {
            assert!(warned.contains(&row.message), "no test raises this warning");
            continue;
        }
        assert!(
            known.contains(&row.message.as_str()),
            "no test raises {}",
            row.message
        );
    }
    for message in known {
        assert!(
            page.iter().any(|row| row.message == message),
            "no error: {message}"
        );
    }
}

#[test]
fn the_warnings_of_a_dependency_under_policies_and_of_a_child_name_a_remedy() {
    let database = Cluster::shared().database();
    let mut admin = database.connect();
    let (one, other) = (database.cluster.role(), database.cluster.role());
    admin.run(&format!(
        "SELECT cache_create('c'), cache_create('plain'); ALTER TABLE c ENABLE ROW LEVEL SECURITY; \
         CREATE TABLE source (k text); ALTER TABLE source OWNER TO {one}; GRANT ALL ON c, plain TO {one}; \
         CREATE TABLE child (k text); ALTER TABLE child OWNER TO {other}"
    ));
    let page = documented();
    let check = |error: DbError| {
        let row = page.iter().find(|row| fits(error.message(), &row.message));
        let row = row.unwrap_or_else(|| panic!("the page has not: {error:?}"));
        assert_eq!(error.hint(), Some(row.hint.as_str()), "{error:?}");
    };
    let mut owner = database.connect_as(&one);
    check(refused(
        owner.try_lines("SELECT cache_depend('source', 'k', 'c')"),
        "42501",
    ));
    owner.run("SELECT cache_depend('source', 'k', 'plain')");
    check(refused(
        admin.try_lines("ALTER TABLE child INHERIT source"),
        "42501",
    ));
}

/// Names that SQL must quote.
const ODD_SCHEMA: &str = "Odd schema";
const ODD_CACHE: &str = "the \"cache\"";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Checks that a call without a needed privilege fails, that the hint has the GRANT, and that the call passes the
/// privilege check after this GRANT.
fn check_grants(storage: &str) {
    let database = Cluster::hot().database();
    let mut admin = database.connect();
    let bare = database.cluster.role();
    let role = format!("{bare} o'\"x\"");
    let name = format!("{}.{}", quoted(ODD_SCHEMA), quoted(ODD_CACHE));
    let literal = name.replace('\'', "''");
    admin.run(&format!(
        "ALTER ROLE {bare} RENAME TO {}; CREATE SCHEMA {}; GRANT USAGE ON SCHEMA {} TO PUBLIC; \
         SELECT cache_create('{literal}', storage => '{storage}'); \
         SELECT cache_set('n', '1', cache => '{literal}')",
        quoted(&role),
        quoted(ODD_SCHEMA),
        quoted(ODD_SCHEMA),
    ));
    let mut user = database.connect_as(&role);
    let there = functions_of_the_extension(&mut admin);
    let mut tried = 0;
    for (function, needs, call) in FUNCTIONS {
        if !there.iter().any(|known| known == function) || call.is_empty() {
            continue;
        }
        let call = format!("SELECT {}", call.replace("$c", &format!("'{literal}'")));
        match needs {
            Needs::All(privileges) => {
                let error = refused(user.try_lines(&call), "42501");
                let grant = format!(
                    "GRANT {} ON {name} TO {}",
                    privileges.join(", "),
                    quoted(&role)
                );
                let hint = format!("The owner can allow it: {grant};");
                assert_eq!(error.hint(), Some(hint.as_str()), "{function} on {storage}");
                admin.run(&grant);
                if let Err(error) = user.try_lines(&call) {
                    panic!("{function} on {storage}, with the GRANT: {error:?}");
                }
                admin.run(&format!("REVOKE ALL ON {name} FROM {}", quoted(&role)));
            }
            Needs::Owner(_) => {
                let error = refused(user.try_lines(&call), "42501");
                let hint = "Only role postgres and its members may do it.";
                assert_eq!(error.hint(), Some(hint), "{function} on {storage}");
            }
            _ => continue,
        }
        tried += 1;
    }
    assert!(tried > 30, "{tried} functions were tried");
    drop(user);
    admin.run(&format!("DROP OWNED BY {0}; DROP ROLE {0}", quoted(&role)));
}

#[test]
fn a_missing_privilege_names_the_grant_on_a_table_cache() {
    check_grants("unlogged");
}

#[test]
fn a_missing_privilege_names_the_grant_on_a_memory_cache() {
    check_grants("memory");
}

#[test]
fn no_hint_suggests_a_grant_on_a_relation_that_is_no_cache() {
    let database = Cluster::hot().database();
    let mut admin = database.connect();
    let role = database.cluster.role();
    admin.run("CREATE TABLE secret (k text); CREATE VIEW hidden AS SELECT 1 AS i; CREATE SEQUENCE counted");
    let mut user = database.connect_as(&role);
    for relation in ["secret", "hidden", "counted", "pg_authid"] {
        for call in [
            "cache_get('k', $c)",
            "cache_set('k', 'v', cache => $c)",
            "cache_delete('k', $c)",
        ] {
            let call = call.replace("$c", &format!("'{relation}'"));
            let error = refused(user.try_lines(&format!("SELECT {call}")), "42501");
            assert_eq!(error.hint(), None, "{call}");
        }
    }
}

/// A call that needs only DELETE runs its statement as the owner, so the owner needs the other privileges.
#[test]
fn the_hint_names_the_owner_if_the_owner_lacks_the_privilege() {
    let database = Cluster::hot().database();
    let mut admin = database.connect();
    let (owner, user) = (database.cluster.role(), database.cluster.role());
    admin.run(&format!(
        "SELECT cache_create('c'); SELECT cache_set('k', 'v', cache => 'c'); ALTER TABLE c OWNER TO {owner}; \
         REVOKE SELECT ON c FROM {owner}; GRANT DELETE ON c TO {user}"
    ));
    let mut user = database.connect_as(&user);
    user.run("SET pgcache.table_path = plan");
    for call in [
        "cache_delete('k', 'c')",
        "cache_delete_prefix('k', 'c')",
        "cache_expire('c')",
    ] {
        let error = refused(user.try_lines(&format!("SELECT {call}")), "42501");
        let privileges = match call.starts_with("cache_expire") {
            true => "SELECT, UPDATE",
            false => "SELECT",
        };
        let hint = format!("The owner can allow it: GRANT {privileges} ON public.c TO {owner};");
        assert_eq!(error.hint(), Some(hint.as_str()), "{call}");
    }
    admin.run(&format!("GRANT SELECT ON c TO {owner}"));
    assert_eq!(user.text("SELECT cache_delete('k', 'c')"), "t");
}

/// Under row-level security the statement runs as the caller, who needs the other privileges.
#[test]
fn the_hint_names_the_caller_if_policies_apply_to_the_caller() {
    let database = Cluster::hot().database();
    let mut admin = database.connect();
    let role = database.cluster.role();
    admin.run(&format!(
        "SELECT cache_create('c'); ALTER TABLE c ENABLE ROW LEVEL SECURITY; CREATE POLICY all_rows ON c USING (true); \
         GRANT DELETE ON c TO {role}"
    ));
    let mut user = database.connect_as(&role);
    for (call, privileges) in [
        ("cache_delete('k', 'c')", "SELECT"),
        ("cache_delete_many('{k,l}', 'c')", "SELECT"),
        ("cache_delete_prefix('k', 'c')", "SELECT"),
        ("cache_expire('c')", "SELECT, UPDATE"),
    ] {
        let error = refused(user.try_lines(&format!("SELECT {call}")), "42501");
        let hint = format!("The owner can allow it: GRANT {privileges} ON public.c TO {role};");
        assert_eq!(error.hint(), Some(hint.as_str()), "{call}");
        admin.run(&format!("GRANT {privileges} ON c TO {role}"));
        user.run(&format!("SELECT {call}"));
        admin.run(&format!("REVOKE {privileges} ON c FROM {role}"));
    }
}

#[test]
fn a_grant_is_named_in_the_encoding_of_the_database() {
    let database =
        Cluster::shared().empty_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let mut admin = database.connect();
    let role = database.cluster.role();
    admin.run("CREATE EXTENSION pgcache; SELECT cache_create('caché')");
    let mut user = database.connect_as(&role);
    let error = refused(user.try_lines("SELECT cache_get('k', 'caché')"), "42501");
    assert_eq!(error.message(), "permission denied for table caché");
    let hint = format!("The owner can allow it: GRANT SELECT ON public.\"caché\" TO {role};");
    assert_eq!(error.hint(), Some(hint.as_str()));
}

#[test]
fn a_write_on_a_read_only_server_names_the_caches_that_can_be_written() {
    let mut session = Cluster::hot().database().connect();
    session.run("SELECT cache_create('c'), cache_create('m', storage => 'memory')");
    session.run("BEGIN READ ONLY; SAVEPOINT s");
    for call in [
        "cache_set('k', 'v', cache => 'c')",
        "cache_delete('k', 'c')",
        "cache_incr('k', cache => 'c')",
    ] {
        let error = refused(session.try_lines(&format!("SELECT {call}")), "25006");
        let hint = error.hint().unwrap_or_default();
        assert!(hint.contains("memory cache"), "{error:?}");
        session.run("ROLLBACK TO s");
    }
    session.run("SELECT cache_set('k', 'v', cache => 'm')"); // as the hint says
}

/// A key. No message may show even a part of it.
const KEY: &str = "Kq7keypiece";
/// A value. No message may show even a part of it.
const VALUE: &str = "Vx9valuepiece";

/// Returns everything that an error sends to its client, and so to the log.
fn words(error: &DbError) -> String {
    format!("{error:?}")
}

fn shows_nothing(session: &mut Client, call: &str) {
    let Err(error) = session.try_lines(call) else {
        panic!("{call} should have failed");
    };
    let error = error
        .as_db_error()
        .unwrap_or_else(|| panic!("{call} broke the session"))
        .clone();
    let words = words(&error);
    for piece in ["keypiece", "Kq7", "valuepiece", "Vx9", "0xc3", "0x28"] {
        assert!(!words.contains(piece), "{call} shows {piece}: {words}");
    }
}

/// Text, bytes and JSON that a jsonb cache rejects. Each contains the secret value.
const NO_JSON: [&str; 6] = [
    "'Vx9valuepiece'",
    "'{\"a\": Vx9valuepiece}'",
    "'[\"valuepiece\", Vx9'",
    "'{\"Vx9valuepiece\": \"\\Vx9\"}'",
    "'\"Vx9valuepiece \\u0000\"'",
    "'{\"Vx9valuepiece\" 1}'",
];

#[test]
fn a_value_that_cannot_be_converted_is_not_shown() {
    let mut session = Cluster::hot().database().connect();
    for (storage, prefix) in [("unlogged", "t"), ("memory", "m")] {
        session.run(&format!(
            "SELECT cache_create('{prefix}j', storage => '{storage}', value_type => 'jsonb'), \
             cache_create('{prefix}t', storage => '{storage}'), \
             cache_create('{prefix}b', storage => '{storage}', value_type => 'bytea')"
        ));
        session.run(&format!(
            "SELECT cache_set_json('k', '1', cache => '{prefix}j')"
        ));
        for value in NO_JSON {
            for call in [
                format!("cache_set('{KEY}', {value}, cache => '{prefix}j')"),
                format!(
                    "cache_set_bytes('{KEY}', convert_to({value}, 'UTF8'), cache => '{prefix}j')"
                ),
                format!("cache_add('{KEY}', {value}, cache => '{prefix}j')"),
                format!("cache_replace('k', {value}, cache => '{prefix}j')"),
                format!("cache_cas('k', {value}, '1', cache => '{prefix}j')"),
                format!("cache_delete_if('k', {value}, cache => '{prefix}j')"),
                format!("cache_set_many(ARRAY['{KEY}'], ARRAY[{value}], cache => '{prefix}j')"),
                format!(
                    "cache_set_leased('k', {value}, l.lease, cache => '{prefix}j') FROM cache_lease('other', cache => '{prefix}j') AS l"
                ),
            ] {
                shows_nothing(&mut session, &format!("SELECT {call}"));
            }
            // Values that are stored and read as JSON, and values from a loader.
            session.run(&format!(
                "SELECT cache_set('{KEY}', {value}, cache => '{prefix}t')"
            ));
            shows_nothing(
                &mut session,
                &format!("SELECT cache_get_json('{KEY}', '{prefix}t')"),
            );
            session.run("DROP TABLE IF EXISTS given");
            session.run(&format!("CREATE TABLE given AS SELECT {value}::text AS v"));
            for function in ["cache_fetch", "cache_fetch_json"] {
                let call = format!(
                    "SELECT {function}('{KEY}', 'SELECT v FROM given', cache => '{prefix}j')"
                );
                shows_nothing(&mut session, &call);
            }
        }
        // The bytes are not valid text. Postgres would show them as 0xc3 0x28.
        let bytes = "'\\xc328'::bytea";
        session.run(&format!(
            "SELECT cache_set_bytes('{KEY}', {bytes}, cache => '{prefix}b')"
        ));
        for call in [
            format!("cache_get('{KEY}', '{prefix}b')"),
            format!("cache_get_json('{KEY}', '{prefix}b')"),
            format!("cache_incr('{KEY}', cache => '{prefix}b')"),
            format!("* FROM cache_lookup('{KEY}', '{prefix}b')"),
            format!("* FROM cache_scan(cache => '{prefix}b')"),
            format!("* FROM cache_get_many(ARRAY['{KEY}'], '{prefix}b')"),
            format!("cache_get_touch('{KEY}', '1 hour', '{prefix}b')"),
            format!("cache_take('{KEY}', '{prefix}b')"),
            format!("cache_fetch('{KEY}', 'SELECT 1', cache => '{prefix}b')"),
            format!("cache_set_bytes('{KEY}', {bytes}, cache => '{prefix}t')"),
            format!("cache_set_bytes('{KEY}', {bytes}, cache => '{prefix}j')"),
            format!("cache_set_many_bytes(ARRAY['{KEY}'], ARRAY[{bytes}], cache => '{prefix}t')"),
        ] {
            shows_nothing(&mut session, &format!("SELECT {call}"));
        }
        session.run(&format!(
            "SELECT cache_set('{KEY}', '{VALUE}', cache => '{prefix}t')"
        ));
        shows_nothing(
            &mut session,
            &format!("SELECT cache_incr('{KEY}', cache => '{prefix}t')"),
        );
        shows_nothing(
            &mut session,
            &format!("SELECT cache_rate_limit('{KEY}', 5, '1 hour', '{prefix}t')"),
        );
    }
}

#[test]
fn a_row_that_violates_a_constraint_is_not_shown() {
    let mut session = Cluster::hot().database().connect();
    session.run("SELECT cache_create('parent', storage => 'logged'); CREATE TABLE referring (k text REFERENCES parent)");
    session.run(&format!(
        "SELECT cache_set('{KEY}', '{VALUE}', cache => 'parent'); INSERT INTO referring VALUES ('{KEY}')"
    ));
    for call in [
        format!("cache_delete('{KEY}', 'parent')"),
        "cache_delete_prefix('Kq', 'parent')".into(),
        format!("cache_take('{KEY}', 'parent')"),
        format!("cache_delete_many(ARRAY['{KEY}'], 'parent')"),
    ] {
        shows_nothing(&mut session, &format!("SELECT {call}"));
    }
    for (constraint, state) in [
        ("ADD CONSTRAINT narrow CHECK (length(value) < 5)", "23514"),
        ("ALTER value SET NOT NULL", "23502"),
        ("ADD CONSTRAINT once UNIQUE (value)", "23505"),
        (
            "ADD CONSTRAINT known FOREIGN KEY (value) REFERENCES referring_2 (v)",
            "23503",
        ),
        ("ADD CONSTRAINT apart EXCLUDE (value WITH =)", "23P01"),
    ] {
        session.run("DROP TABLE IF EXISTS c; DROP TABLE IF EXISTS referring_2; CREATE TABLE referring_2 (v text UNIQUE)");
        session.run("SELECT cache_create('c')");
        let (value, first) = match state {
            "23502" => ("NULL".to_owned(), "x"),
            _ => (format!("'{VALUE}'"), VALUE),
        };
        if matches!(state, "23505" | "23P01") {
            session.run(&format!(
                "SELECT cache_set('first', '{first}', cache => 'c')"
            ));
        }
        session.run(&format!("ALTER TABLE c {constraint}"));
        for call in [
            format!("cache_set('{KEY}', {value}, cache => 'c')"),
            format!("cache_add('{KEY}', {value}, cache => 'c')"),
            format!(
                "cache_set_leased('{KEY}2', {value}, l.lease, cache => 'c') FROM cache_lease('{KEY}2', cache => 'c') AS l"
            ),
            format!("cache_fetch('{KEY}', $$SELECT {value}::text$$, cache => 'c')"),
        ] {
            if state == "23502" && call.starts_with("cache_fetch") {
                continue; // the call returns a value that it cannot store, and raises no error
            }
            let call = format!("SELECT {call}");
            let error = refused(session.try_lines(&call), state);
            assert!(
                error
                    .detail()
                    .is_some_and(|detail| detail.contains("not shown")),
                "{error:?}"
            );
            // Ignore the context: it contains the loader's text, which the caller wrote.
            let shown = format!(
                "{} {:?} {:?}",
                error.message(),
                error.detail(),
                error.hint()
            );
            assert!(!shown.contains("piece"), "{call}: {shown}");
        }
    }
}

/// Connects a session. Returns it with a channel that receives its notices.
fn with_notices(database: &Database) -> (Client, Receiver<DbError>) {
    database.cluster.connect_with_notices(&database.name)
}

fn received(notices: &Receiver<DbError>) -> Vec<DbError> {
    notices.try_iter().collect()
}

#[test]
fn a_text_that_looks_like_a_bytea_literal_raises_a_notice() {
    let database = Cluster::shared().database();
    let (mut session, notices) = with_notices(&database);
    session.run("SELECT cache_create('b', value_type => 'bytea'); SELECT cache_create('t')");
    for (call, times) in [
        (r"cache_set('k', '\x00ff', cache => 'b')", 1),
        (r"cache_set('k', '\x00f', cache => 'b')", 0),
        (r"cache_set('k', '\x00ff', cache => 't')", 0),
        (r"cache_set_bytes('k', '\x00ff', cache => 'b')", 0),
    ] {
        session.run(&format!("SELECT {call}"));
        let received = received(&notices);
        assert_eq!(received.len(), times, "{call}: {received:?}");
        let page = documented();
        for notice in received {
            let row = page.iter().find(|row| row.message == notice.message());
            let row = row.unwrap_or_else(|| panic!("the page has not: {notice:?}"));
            assert_eq!(notice.code().code(), row.state);
            assert_eq!(notice.hint(), Some(row.hint.as_str()));
        }
    }
}

#[test]
fn a_folded_or_truncated_name_raises_a_notice() {
    let database = Cluster::shared().database();
    let (mut session, notices) = with_notices(&database);
    let long = "n".repeat(70);
    for (given, state, shown) in [
        ("Users", "00000", "users"),
        ("public.\"Users\"", "", ""),
        ("PUBLIC . Shops", "00000", "shops"),
        ("PUBLIC.plain", "", ""), // the name of a schema is not the name of a cache
        ("\"a\"\".B\"", "", ""),
        (long.as_str(), "42622", &long[..63]),
    ] {
        session.run(&format!("SELECT cache_create('{given}')"));
        let received = received(&notices);
        let codes: Vec<_> = received.iter().map(|notice| notice.code().code()).collect();
        assert_eq!(codes.join(" "), state, "{given}: {received:?}");
        for notice in received {
            assert!(
                notice.message().ends_with(&format!("\"{shown}\"")),
                "{notice:?}"
            );
            assert!(notice.hint().is_some(), "{notice:?}");
        }
    }
}

#[test]
fn a_publication_that_includes_a_new_logged_cache_is_reported() {
    for (of, others) in [
        ("ALL TABLES", &["s.c"][..]),
        (
            "TABLES IN SCHEMA s",
            &["s.c", "public.b', storage => 'logged"],
        ),
    ] {
        let database = Cluster::shared().database();
        let (mut session, notices) = with_notices(&database);
        session.run(
            "CREATE SCHEMA s; SELECT cache_create('s.before', storage => 'logged');
             CREATE PUBLICATION named FOR TABLE s.before",
        );
        // Discard Postgres' own warning that the tests' wal_level does not support logical replication.
        received(&notices);
        session.run("SELECT cache_create('s.early', storage => 'logged')");
        assert_eq!(received(&notices).len(), 0, "{of}: no publication of all");
        session.run(&format!("CREATE PUBLICATION every FOR {of}"));
        received(&notices);
        session.run("SELECT cache_create('s.a', storage => 'logged')");
        let reported = received(&notices);
        let [notice] = &reported[..] else {
            panic!("{of}: one notice, not {reported:?}");
        };
        let expected = "publication \"every\" includes cache \"a\"";
        assert_eq!(notice.message(), expected, "{of}");
        let hint = notice.hint().expect("it says what to do");
        assert!(hint.contains("subscriber"), "{hint}");
        for other in others {
            session.run(&format!("SELECT cache_create('{other}')"));
            assert_eq!(received(&notices).len(), 0, "{of}: {other}");
        }
    }
}

#[test]
fn a_publication_that_includes_an_attached_table_is_reported() {
    for (of, persistence, is_included) in [
        ("ALL TABLES", "", true),
        ("TABLE a", "", true),
        ("TABLES IN SCHEMA public", "", true),
        ("TABLE b", "", false),
        ("ALL TABLES", "UNLOGGED", false),
    ] {
        let database = Cluster::shared().database();
        let (mut session, notices) = with_notices(&database);
        session.run(&format!(
            "CREATE {persistence} TABLE a (key text PRIMARY KEY, value text, expires_at timestamptz);
             CREATE TABLE b (LIKE a); CREATE PUBLICATION p FOR {of}"
        ));
        // Discard Postgres' own warning that the tests' wal_level does not support logical replication.
        received(&notices);
        session.run("SELECT cache_attach('a')");
        let reported = received(&notices);
        if !is_included {
            assert_eq!(reported.len(), 0, "{of}: {reported:?}");
            continue;
        }
        let [notice] = &reported[..] else {
            panic!("{of}: one notice, not {reported:?}");
        };
        let expected = "publication \"p\" includes cache \"a\"";
        assert_eq!(notice.message(), expected, "{of}");
        let hint = notice.hint().expect("it says what to do");
        assert!(
            hint.contains("Attach the table on each subscriber"),
            "{hint}"
        );
    }
}

#[test]
fn a_notice_reports_the_column_that_attaching_adds() {
    let database = Cluster::shared().database();
    let (mut session, notices) = with_notices(&database);
    session.run(
        "CREATE TABLE c (key text PRIMARY KEY, value text, expires timestamptz); SELECT cache_attach('c')",
    );
    let [notice] = &received(&notices)[..] else {
        panic!("one notice");
    };
    let hint = notice.hint().expect("it says what to do");
    assert!(
        notice.message().contains("\"expires_at\"") && hint.contains("expires_column"),
        "{notice:?}"
    );
    // The statements in the hint work.
    session.run(
        "SELECT cache_detach('c'); ALTER TABLE c DROP expires_at; SELECT cache_attach('c', expires_column => 'expires')",
    );
    assert_eq!(received(&notices).len(), 0);
}

#[test]
fn without_preload_the_extension_says_which_lines_are_missing() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let database = cluster.empty_database("");
    let (mut session, notices) = with_notices(&database);
    session.run("CREATE EXTENSION pgcache");
    let [notice] = &received(&notices)[..] else {
        panic!("one notice");
    };
    assert_eq!(notice.severity(), "NOTICE");
    let hint = notice.hint().expect("it says what to do");
    let lines: Vec<&str> = hint.lines().filter(|line| line.contains(" = ")).collect();
    assert_eq!(lines.len(), 2, "{hint}");
    // With either of the two preload settings in the hint, plain SQL does not see expired rows.
    let seen = |notice: &DbError| {
        notice
            .detail()
            .is_some_and(|detail| detail.contains("sees expired"))
    };
    assert!(
        seen(notice) && hint.contains("session_preload_libraries"),
        "{notice:?}"
    );
    let hides = "SELECT DISTINCT hides_expired FROM pgcache.caches WHERE storage <> 'memory'";
    assert_eq!(session.lines(hides), ["f"]);
    let alter = format!("ALTER DATABASE {}", database.name);
    session.run(&format!(
        "DROP EXTENSION pgcache; {alter} SET session_preload_libraries = 'pgcache'"
    ));
    let (mut other, other_notices) = with_notices(&database);
    other.run("CREATE EXTENSION pgcache");
    let [notice] = &received(&other_notices)[..] else {
        panic!("one notice");
    };
    assert!(!seen(notice), "{notice:?}");
    assert_eq!(other.lines(hides), ["t"]);
    drop(other);
    session.run(&format!(
        "{alter} RESET session_preload_libraries; SET client_min_messages = warning"
    ));

    // A session that suppresses notices receives none, and a change that is rolled back causes none.
    session
        .run("DROP EXTENSION pgcache; SET client_min_messages = warning; CREATE EXTENSION pgcache");
    session.run("RESET client_min_messages; DROP EXTENSION pgcache");
    session.run("BEGIN; CREATE EXTENSION pgcache; ROLLBACK");
    session.run("BEGIN; SAVEPOINT s; CREATE EXTENSION pgcache; ROLLBACK TO s; COMMIT");
    assert_eq!(received(&notices).len(), 0);

    // The lines that the hint suggests work.
    drop(session);
    cluster.configure(&lines);
    cluster.restart(pgcache_tests::cluster::Shutdown::Fast);
    let (mut session, notices) = with_notices(&database);
    session.run("CREATE EXTENSION pgcache; SELECT cache_create('m', storage => 'memory')");
    assert_eq!(received(&notices).len(), 0);
}

#[test]
fn without_preload_a_notice_lists_missed_changes_until_a_setting_covers_them() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let database = cluster.database();
    let depend = "SELECT cache_depend('source', 'k', 'c')";
    let (mut session, notices) = with_notices(&database);
    session.run("CREATE TABLE source (k text); SELECT cache_create('c')");
    session.run(depend);
    let [notice] = &received(&notices)[..] else {
        panic!("one notice");
    };
    assert_eq!(notice.severity(), "NOTICE");
    assert_eq!(
        notice.message(),
        "pgcache is not in shared_preload_libraries"
    );
    let hint = notice.hint().expect("it says what to do");
    assert!(
        hint.contains("shared_preload_libraries") && hint.contains("session_preload_libraries"),
        "{hint}"
    );

    session.run(&format!(
        "ALTER DATABASE {} SET session_preload_libraries = 'pgcache'",
        database.name
    ));
    let (mut session, notices) = with_notices(&database);
    session.run(depend);
    assert_eq!(received(&notices).len(), 0);

    session.run(&format!(
        "ALTER DATABASE {} RESET session_preload_libraries",
        database.name
    ));
    drop(session);
    cluster.configure(&[PRELOAD]);
    cluster.restart(pgcache_tests::cluster::Shutdown::Fast);
    let (mut session, notices) = with_notices(&database);
    session.run(depend);
    assert_eq!(received(&notices).len(), 0);
}

#[test]
fn the_lines_that_are_missing_keep_other_libraries() {
    let cluster = Cluster::start(&["shared_preload_libraries = 'plpgsql'"]);
    let (mut session, notices) = with_notices(&cluster.empty_database(""));
    session.run("CREATE EXTENSION pgcache");
    let [notice] = &received(&notices)[..] else {
        panic!("one notice");
    };
    let line = PRELOAD.replace("pgcache'", "plpgsql, pgcache'");
    assert!(
        notice.hint().is_some_and(|hint| hint.contains(&line)),
        "{notice:?}"
    );
}

/// Postgres itself raises the error for a misspelt cache, because it reads the name before it calls pgcache's function.
/// The reference quotes the message and names the things to check.
#[test]
fn the_message_of_a_misspelt_cache_is_the_one_that_the_reference_explains() {
    let mut session = Cluster::shared().database().connect();
    let error = refused(
        session.try_lines("SELECT cache_get('k', 'prodcuts')"),
        "42P01",
    );
    assert_eq!(error.message(), "relation \"prodcuts\" does not exist");
    assert!(error.position().is_some(), "{error:?}");
    let page = page("docs/reference.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("`relation \"…\" does not exist`"))
        .collect();
    assert!(
        rows.len() == 1 && rows[0].contains("misspelt") && rows[0].contains("pgcache.caches"),
        "{rows:?}"
    );
    let number = refused(session.try_lines("SELECT cache_set('k', 'v', 60)"), "42883");
    assert!(
        number.message().starts_with("function cache_set("),
        "{number:?}"
    );
}
