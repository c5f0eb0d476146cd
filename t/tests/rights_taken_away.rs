//! Privileges are checked on every call. A session remembers what was granted; it must forget
//! with the first call after anything that takes the right away has been acknowledged.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;

const GET: &str = "SELECT cache_get('k', 'c')";

/// What gives a role the right to read `c`, and what takes it away; `r` is the role, `g` a group.
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
];

#[test]
fn a_right_is_gone_with_the_first_call_after_it_was_taken_away() {
    let database = Cluster::hot().database();
    let mut owner = database.connect();
    for storage in ["unlogged", "memory"] {
        for (give, take) in WAYS {
            let (role, group) = (database.cluster.role(), database.cluster.role());
            let named = |sql: &str| {
                let words = sql.split(' ').map(|word| match word.trim_end_matches(';') {
                    "r" => word.replace('r', &role),
                    "g" => word.replace('g', &group),
                    _ => word.to_owned(),
                });
                words
                    .collect::<Vec<_>>()
                    .join(" ")
                    .replace("TABLE c OWNER", kind(storage))
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
            // In its own transaction, too, and back again when that is rolled back.
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

/// A memory cache is a view.
fn kind(storage: &str) -> &'static str {
    match storage {
        "memory" => "VIEW c OWNER",
        _ => "TABLE c OWNER",
    }
}
