//! Tests that privileges are checked on every call. A session caches the privileges that it finds. At the first call
//! after a revocation was acknowledged, it must no longer use them, whatever the kind of revocation.

use std::thread;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::refusal::refused;

const GET: &str = "SELECT cache_get('k', 'c')";

/// Statements that give a role the privilege to read `c`, each with the statement that revokes it. `r` is the role, `g`
/// a group, `d` the database.
const WAYS: &[(&str, &str)] = &[
    ("GRANT SELECT ON c TO r", "REVOKE SELECT ON c FROM r"),
    (
        "GRANT SELECT ON c TO PUBLIC",
        "REVOKE SELECT ON c FROM PUBLIC",
    ),
    ("GRANT SELECT ON c TO g; GRANT g TO r", "REVOKE g FROM r"),
    (
        "GRANT SELECT ON c TO g; GRANT g TO r",
        "REVOKE SELECT ON c FROM g",
    ),
    ("ALTER ROLE r SUPERUSER", "ALTER ROLE r NOSUPERUSER"),
    (
        "ALTER TABLE c OWNER TO r",
        "ALTER TABLE c OWNER TO postgres",
    ),
    (
        "GRANT pg_read_all_data TO r",
        "REVOKE pg_read_all_data FROM r",
    ),
    ("GRANT SELECT ON c TO r", "DROP OWNED BY r"),
    ("GRANT SELECT ON c TO g; GRANT g TO r", "DROP OWNED BY g"),
    (
        "ALTER TABLE c OWNER TO r",
        "REASSIGN OWNED BY r TO postgres",
    ),
    (
        "GRANT SELECT ON c TO pg_database_owner; ALTER DATABASE d OWNER TO r",
        "ALTER DATABASE d OWNER TO postgres",
    ),
    (
        "GRANT SELECT ON c TO pg_database_owner; GRANT g TO r; ALTER DATABASE d OWNER TO g",
        "ALTER DATABASE d OWNER TO postgres",
    ),
    (
        "ALTER TABLE c OWNER TO pg_database_owner; ALTER DATABASE d OWNER TO r",
        "ALTER DATABASE d OWNER TO postgres",
    ),
];

/// Before version 16, whether a member inherits privileges is a property of the role; from 16 on, it is a property of
/// the membership.
const INHERITED_BEFORE_16: (&str, &str) = (
    "GRANT SELECT ON c TO g; GRANT g TO r; ALTER ROLE r INHERIT",
    "ALTER ROLE r NOINHERIT",
);
const INHERITED: (&str, &str) = (
    "GRANT SELECT ON c TO g; GRANT g TO r WITH INHERIT TRUE",
    "GRANT g TO r WITH INHERIT FALSE",
);

/// Returns `sql` with the names of this database's role and group.
fn named(sql: &str, database: &Database, role: &str, group: &str) -> String {
    let words = sql.split(' ').map(|word| {
        let bare = word.trim_end_matches(';');
        let name = match bare {
            "r" => role,
            "g" => group,
            "d" => &database.name,
            _ => bare,
        };
        format!("{name}{}", &word[bare.len()..])
    });
    words.collect::<Vec<_>>().join(" ")
}

fn is_before_16(session: &mut postgres::Client) -> bool {
    session.number("SHOW server_version_num") < 160_000
}

#[test]
fn a_right_is_gone_with_the_first_call_after_it_was_taken_away() {
    let database = Cluster::hot().database();
    let mut owner = database.connect();
    let inherited = match is_before_16(&mut owner) {
        true => INHERITED_BEFORE_16,
        false => INHERITED,
    };
    for storage in ["unlogged", "memory"] {
        for (give, take) in WAYS.iter().chain([&inherited]) {
            let (role, group) = (database.cluster.role(), database.cluster.role());
            let named = |sql: &str| {
                named(sql, &database, &role, &group).replace("TABLE c OWNER", kind(storage))
            };
            owner.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
            owner.run("SELECT cache_set('k', 'v', cache => 'c')");
            owner.run(&format!("GRANT USAGE, CREATE ON SCHEMA public TO {role}"));
            let mut guest = database.connect_as(&role);
            refused(guest.try_value(GET), "42501");
            owner.run(&named(give));
            (0..3).for_each(|_| assert_eq!(guest.text(GET), "v", "{give}"));
            owner.run(&named(take));
            refused(guest.try_value(GET), "42501");
            // The revocation takes effect at once in its own transaction, and a rollback restores the privilege.
            owner.run(&named(give));
            assert_eq!(guest.text(GET), "v", "{give}");
            owner.run(&format!("BEGIN; {}; SET LOCAL ROLE {role}", named(take)));
            refused(owner.try_value(GET), "42501");
            owner.run("ROLLBACK");
            owner.run(&format!("SET ROLE {role}"));
            assert_eq!(owner.text(GET), "v", "{give}");
            owner.run("RESET ROLE");
            owner.run("SELECT cache_drop('c')");
        }
    }
}

/// Returns the kind of relation for ALTER ... OWNER: a memory cache is a view.
fn kind(storage: &str) -> &'static str {
    match storage {
        "memory" => "VIEW c OWNER",
        _ => "TABLE c OWNER",
    }
}

/// Statements that show a role the rows of `c` and `source`, which have row-level security, each with the statement
/// that hides them.
const POLICIES: &[(&str, &str)] = &[
    (
        "CREATE POLICY p ON $t TO g USING (true); GRANT g TO r",
        "REVOKE g FROM r",
    ),
    (
        "CREATE POLICY p ON $t TO pg_database_owner USING (true); ALTER DATABASE d OWNER TO r",
        "ALTER DATABASE d OWNER TO postgres",
    ),
    ("ALTER ROLE r BYPASSRLS", "ALTER ROLE r NOBYPASSRLS"),
    ("ALTER ROLE r SUPERUSER", "ALTER ROLE r NOSUPERUSER"),
    (
        "ALTER TABLE $t OWNER TO r",
        "ALTER TABLE $t OWNER TO postgres; GRANT ALL ON $t TO r",
    ),
    ("ALTER TABLE $t OWNER TO g; GRANT g TO r", "REVOKE g FROM r"),
    (
        "CREATE POLICY p ON $t TO r USING (true)",
        "DROP POLICY p ON $t",
    ),
];

/// A plan contains the policies that applied to its role, and a session keeps the plan. It must not use the plan after
/// the policy no longer applies.
#[test]
fn a_policy_counts_for_a_role_until_the_first_call_after_it_no_longer_does() {
    let database = Cluster::hot().database();
    let mut owner = database.connect();
    owner.run("SET lock_timeout = '60s'");
    for (give, take) in POLICIES {
        let (role, group) = (database.cluster.role(), database.cluster.role());
        let on_both = |sql: &str| {
            let each = sql.split("; ").map(|part| match part.contains("$t") {
                true => format!(
                    "{}; {}",
                    part.replace("$t", "c"),
                    part.replace("$t", "source")
                ),
                false => part.to_owned(),
            });
            named(
                &each.collect::<Vec<_>>().join("; "),
                &database,
                &role,
                &group,
            )
        };
        owner.run(&format!(
            "SELECT cache_create('c'), cache_create('loaded'); CREATE TABLE source (v text); INSERT INTO source VALUES ('s'); \
             SELECT cache_set_many('{{k,l}}', '{{v,w}}', cache => 'c'); \
             ALTER TABLE c ENABLE ROW LEVEL SECURITY; ALTER TABLE source ENABLE ROW LEVEL SECURITY; \
             GRANT ALL ON c, source, loaded TO {role}; GRANT USAGE, CREATE ON SCHEMA public TO {role}, {group}"
        ));
        let mut guest = database.connect_as(&role);
        let calls = [
            ("cache_get('k', 'c')", "v"),
            ("cache_exists('k', 'c')", "t"),
            ("count(*) FROM cache_scan(cache => 'c')", "2"),
            ("count(value) FROM cache_get_many('{k,l}', 'c')", "2"),
            (
                "cache_fetch('f', 'SELECT v FROM source', '1 ms', 'loaded')",
                "s",
            ),
            ("cache_touch('k', NULL, 'c')", "t"),
        ];
        let hidden = ["", "f", "0", "0", "", "f"];
        // Within a transaction, the test uses only statements that keep no lock that would block the change.
        let see = |guest: &mut postgres::Client, sees: bool, when: &str| {
            let calls = &calls[..if when.contains("transaction") { 4 } else { 6 }];
            for ((call, seen), unseen) in calls.iter().zip(hidden) {
                let said = guest.value(&format!("SELECT {call}")).unwrap_or_default();
                assert_eq!(
                    &said,
                    if sees { seen } else { &unseen },
                    "{call}, {when}: {give}"
                );
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        };
        see(&mut guest, false, "before");
        owner.run(&on_both(give));
        (0..2).for_each(|_| see(&mut guest, true, "given"));
        owner.run(&on_both(take));
        see(&mut guest, false, "taken");
        // Revoke in the middle of the reader's transaction, and read in the revoking transaction until it is rolled
        // back.
        let give = on_both(give);
        let give = match give.contains("CREATE POLICY") && !take.contains("DROP POLICY") {
            true => give
                .split("; ")
                .filter(|part| !part.contains("POLICY"))
                .collect::<Vec<_>>()
                .join("; "),
            false => give,
        };
        owner.run(&give);
        // A transaction that has read a table under a policy keeps a lock on it, so a change of that table waits until
        // the transaction ends.
        if !take.contains("$t") {
            guest.run("BEGIN");
            see(&mut guest, true, "given again, in a transaction");
            owner.run(&on_both(take));
            see(&mut guest, false, "taken in a transaction");
            guest.run("COMMIT");
            owner.run(&give);
        }
        owner.run(&format!("SET ROLE {role}"));
        see(&mut owner, true, "by the owner");
        owner.run("RESET ROLE");
        owner.run(&format!("BEGIN; {}; SET LOCAL ROLE {role}", on_both(take)));
        see(&mut owner, false, "taken by the owner");
        owner.run("ROLLBACK");
        owner.run(&format!("SET ROLE {role}"));
        see(&mut owner, true, "rolled back");
        owner.run("RESET ROLE");
        owner.run("DROP TABLE c, loaded, source");
    }
}

/// A call checks its privileges before it waits for the cache's lock. A revocation that commits during the wait must
/// still take effect.
#[test]
fn a_right_is_gone_for_a_call_that_waits_for_the_cache_meanwhile() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    let mut owner = database.connect();
    let role = cluster.role();
    owner.run("SELECT cache_create('c')");
    for call in [
        "cache_get('k', 'c')",
        "cache_lookup('k', 'c')",
        "cache_get_many('{k}', 'c')",
        "cache_scan(cache => 'c')",
        "cache_keys(cache => 'c')",
        "cache_count('c')",
        "cache_lookup_many_bytes('{k}', 'c')",
        "cache_incr_existing('none', 1, 'c')",
        "cache_set('k', 'w', cache => 'c')",
        "cache_incr('n', cache => 'c')",
        "cache_delete('k', 'c')",
        "cache_take('k', 'c')",
        "cache_touch('k', '1 hour', 'c')",
        "cache_fetch('k', 'SELECT 1', cache => 'c')",
    ] {
        owner.run("SELECT cache_set('k', 'v', cache => 'c')");
        owner.run(&format!("GRANT ALL ON c TO {role}"));
        let mut guest = database.connect_as(&role);
        guest.run("SELECT cache_exists('none', 'c')");
        owner.run(&format!("BEGIN; LOCK TABLE c; REVOKE ALL ON c FROM {role}"));
        let said = thread::scope(|scope| {
            let waiting = scope.spawn(|| guest.try_value(&format!("SELECT {call}")));
            let waits =
                "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'c'::regclass AND NOT granted";
            let deadline = Instant::now() + Duration::from_secs(60);
            while !owner.holds(waits) {
                assert!(Instant::now() < deadline, "{call} does not wait");
                thread::sleep(Duration::from_millis(2));
            }
            owner.run("COMMIT");
            waiting.join().expect("the thread ends")
        });
        refused(said, "42501");
        assert_eq!(
            owner.text("SELECT value FROM c WHERE key = 'k'"),
            "v",
            "{call}"
        );
    }
}
