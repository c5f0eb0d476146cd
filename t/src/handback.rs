//! Checks a server after a test, so that the next test can use it: neither the test nor pgcache may have left anything
//! behind on it.

use std::time::Duration;

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::pool::Recipe;
use crate::template::WITH_EXTENSION;
use crate::wait::is_so_within;

/// A server that a test is using.
pub(crate) struct Taken {
    /// The recipe of the server, or None if the server belongs to this test and never returns to the pool.
    pub(crate) recipe: Option<Recipe>,
    /// Whether the test gets the same server again if it requests the same recipe.
    pub(crate) is_same: bool,
    pub(crate) cluster: &'static Cluster,
    /// The server's settings when it was new.
    pub(crate) settings: String,
}

/// Returns, in one text, all settings as a new session sees them.
pub(crate) fn settings_of(cluster: &Cluster) -> String {
    all_settings(&mut cluster.connect("postgres"))
}

fn all_settings(session: &mut Client) -> String {
    session.text(
        "SELECT string_agg(name || ' = ' || coalesce(setting, ''), E'\\n' ORDER BY name) FROM pg_settings",
    )
}

/// A check, which returns a description of the fault that it finds, or None if it finds no fault.
type Look<'l> = dyn Fn(&mut Client) -> Option<String> + 'l;

/// Removes the objects that the test created, and returns a description of anything else that it left behind. Marks the
/// server as spoiled if the test has changed settings with ALTER SYSTEM, because some of them take effect only at a
/// restart.
pub(crate) fn find_fault(taken: &Taken) -> Option<String> {
    let cluster = taken.cluster;
    if let Some(line) = cluster.bad_line() {
        return Some(format!("the server's log has: {line}"));
    }
    if cluster.is_spoiled() {
        return None;
    }
    if has_own_settings(cluster) {
        cluster.spoil();
        return None;
    }
    let mut session = match cluster.try_connect("postgres", "postgres") {
        Ok(session) => session,
        Err(error) => return Some(format!("no session can be made: {error}")),
    };
    let looks: [&Look; 7] = [
        &sessions,
        &transactions,
        &|session| tier(cluster, session),
        &databases,
        &objects,
        &roles,
        &|session| {
            (all_settings(session) != taken.settings)
                .then(|| "settings are not as they were".to_owned())
        },
    ];
    looks.iter().find_map(|look| look(&mut session))
}

fn has_own_settings(cluster: &Cluster) -> bool {
    let file = cluster.data().join("postgresql.auto.conf");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().any(|line| !line.starts_with('#'))
}

/// Waits until a query returns no rows. If it still returns rows after 20 seconds, returns them as text.
fn none_within_patience(session: &mut Client, what: &str, sql: &str) -> Option<String> {
    let mut rows = Vec::new();
    let gone = is_so_within(Duration::from_secs(20), || {
        rows = session
            .try_lines(sql)
            .unwrap_or_else(|error| vec![format!("{sql}: {error}")]);
        rows.is_empty()
    });
    (!gone).then(|| format!("{what} is left: {}", rows.join("; ")))
}

/// Lists sessions. Shows only ASCII, because a session's query may come from a database in another encoding.
fn sessions(session: &mut Client) -> Option<String> {
    none_within_patience(
        session,
        "a session",
        "SELECT pid, datname, state, regexp_replace(query COLLATE \"C\", '[^ -~]', '?', 'g') FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )
}

fn transactions(session: &mut Client) -> Option<String> {
    none_within_patience(
        session,
        "a transaction or a slot of replication",
        "SELECT 'prepared', gid FROM pg_prepared_xacts \
         UNION ALL SELECT 'slot', slot_name FROM pg_replication_slots WHERE active",
    )
}

/// Checks that, without sessions, no mark remains, the tier's byte counts add up, and no database has a slot without a
/// cache.
fn tier(cluster: &Cluster, session: &mut Client) -> Option<String> {
    let names = session.lines(&format!(
        "SELECT datname FROM pg_database WHERE datallowconn AND datname NOT IN ('template1', '{WITH_EXTENSION}')"
    ));
    names.iter().find_map(|name| {
        let mut within = cluster.try_connect("postgres", name).ok()?;
        let newest = "SELECT 1 FROM pg_extension JOIN pg_available_extensions ON name = extname \
             WHERE extname = 'pgcache' AND extversion = default_version";
        within.try_value(newest).ok()??;
        // Does not read the view, because a setting of the database may make views unreadable.
        let marks = "SELECT format('%s marks', pending) FROM pgcache.tier_figures() WHERE pending <> 0";
        let sums = "SELECT t::text FROM pgcache.tier_figures() AS t WHERE size > 0 AND NOT \
             (size - used = free AND bookkeeping > 0 AND holes >= 0 AND free >= 0 AND used >= bookkeeping + holes)";
        none_within_patience(&mut within, "in the tier", marks)
            .or_else(|| none_within_patience(&mut within, "a sum that does not add up", sums))
            .or_else(|| slots(&mut within))
    })
}

/// Checks that each of the database's slots in the tier belongs to a cache that exists.
fn slots(session: &mut Client) -> Option<String> {
    none_within_patience(
        session,
        "a slot without a cache",
        "SELECT f.cache FROM pgcache.figures() AS f \
         WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = f.cache)",
    )
}

fn databases(session: &mut Client) -> Option<String> {
    let names = session.lines(&format!(
        "SELECT format('%I', datname) FROM pg_database \
         WHERE NOT datistemplate AND datname NOT IN ('postgres', '{WITH_EXTENSION}')"
    ));
    all(
        session,
        names
            .iter()
            .map(|name| format!("DROP DATABASE {name} WITH (FORCE)")),
    )
}

/// Drops the objects that a test left in the database postgres. Tests of the Redis protocol create caches there; other
/// tests seldom leave objects.
fn objects(session: &mut Client) -> Option<String> {
    let statements = session.lines(
        "SELECT format('DROP PUBLICATION %I', pubname) FROM pg_publication \
         UNION ALL \
         SELECT format('DROP EXTENSION %I CASCADE', extname) FROM pg_extension WHERE extname <> 'plpgsql' \
         UNION ALL \
         SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace AS n \
          WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' \
            AND (nspname <> 'public' OR EXISTS (SELECT FROM pg_depend WHERE refobjid = n.oid AND deptype <> 'i') \
                 OR EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid))",
    );
    let public = [
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
        "CREATE SCHEMA IF NOT EXISTS public AUTHORIZATION pg_database_owner",
        "GRANT USAGE ON SCHEMA public TO PUBLIC",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "ALTER DATABASE postgres RESET ALL",
        "ALTER ROLE ALL RESET ALL",
        "ALTER ROLE postgres RESET ALL",
    ];
    // Objects that an earlier statement dropped by CASCADE no longer exist.
    let statements = statements.into_iter().map(|statement| {
        statement
            .replace("EXTENSION", "EXTENSION IF EXISTS")
            .replace("DROP SCHEMA", "DROP SCHEMA IF EXISTS")
    });
    all(session, statements.chain(public.map(str::to_owned)))
}

fn roles(session: &mut Client) -> Option<String> {
    let names = session.lines(
        "SELECT format('%I', rolname) FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> current_user",
    );
    all(
        session,
        names
            .iter()
            .map(|name| format!("DROP OWNED BY {name} CASCADE"))
            .chain(names.iter().map(|name| format!("DROP ROLE {name}"))),
    )
}

/// Runs these statements, and returns the error of the first statement that fails.
fn all(session: &mut Client, statements: impl IntoIterator<Item = String>) -> Option<String> {
    statements.into_iter().find_map(|statement| {
        let error = session.try_lines(&statement).err()?;
        let words = error.as_db_error().map(|error| error.message().to_owned());
        Some(format!(
            "{statement}: {}",
            words.unwrap_or_else(|| error.to_string())
        ))
    })
}
