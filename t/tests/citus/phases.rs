//! Tests whether Citus commits a transaction in one phase or in two, depending on the nodes that it writes to.

use std::sync::mpsc::Receiver;

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::refusal::refused;
use postgres::Client;
use postgres::error::DbError;

use super::loads::a_key_of_each;
use super::spread::cluster;

/// A session on the coordinator, which receives a notice for each message to another node.
struct Watched {
    session: Client,
    notices: Receiver<DbError>,
    keys: Vec<String>,
}

impl Watched {
    fn on(nodes: &[Cluster], keys: Vec<String>) -> Watched {
        let (mut session, notices) = nodes[0].connect_with_notices("postgres");
        session.run("SET citus.log_remote_commands = on");
        Watched {
            session,
            notices,
            keys,
        }
    }

    /// Replaces $0, $1 and $2 in the text with keys of nodes 0, 1 and 2.
    fn with_keys(&self, text: &str) -> String {
        let each = self.keys.iter().enumerate();
        each.fold(text.to_owned(), |text, (at, key)| {
            text.replace(&format!("${at}"), &format!("'{key}'"))
        })
    }

    /// Runs the statements. Returns how many nodes prepared the transaction, and how many committed it in one phase.
    fn phases(&mut self, statements: &str) -> (usize, usize) {
        self.notices.try_iter().for_each(drop);
        self.session.run(&self.with_keys(statements));
        self.counted()
    }

    fn counted(&self) -> (usize, usize) {
        let lines: Vec<String> = self
            .notices
            .try_iter()
            .map(|notice| notice.message().to_owned())
            .collect();
        let with = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        let once = lines.iter().filter(|line| line.ends_with("issuing COMMIT"));
        (with("PREPARE TRANSACTION"), once.count())
    }
}

/// Statements that run on node 0 and must commit in two phases. `c` is a cache, `p` another table that Citus
/// distributes, and `own` a local table of node 0.
const IN_TWO: &[&str] = &[
    "BEGIN; UPDATE p SET value = 'x' WHERE key = $1; SELECT cache_set($0, '1', cache => 'c'); COMMIT",
    "BEGIN; SELECT cache_set($0, '1', cache => 'c'); UPDATE p SET value = 'x' WHERE key = $1; COMMIT",
    "BEGIN; UPDATE c SET value = '4' WHERE key = $1; SELECT cache_incr($0, cache => 'c'); COMMIT",
    "BEGIN; SELECT cache_set($0, '1', cache => 'c'); SELECT cache_set($1, '1', cache => 'c'); COMMIT",
    "BEGIN; SELECT cache_set($1, '1', cache => 'c'); SELECT cache_set($0, '1', cache => 'c'); COMMIT",
    "BEGIN; SELECT cache_set_many(ARRAY[$0], ARRAY['1'], cache => 'c'); DELETE FROM p WHERE key = $1; COMMIT",
    "BEGIN; UPDATE p SET value = 'x' WHERE key = $1; SELECT cache_delete($0, 'c'); COMMIT",
    // Savepoints.
    "BEGIN; SAVEPOINT s; UPDATE p SET value = 'x' WHERE key = $1; RELEASE s; SAVEPOINT t; SELECT cache_set($0, '1', cache => 'c'); RELEASE t; COMMIT",
    "BEGIN; SAVEPOINT s; SELECT cache_set($0, '1', cache => 'c'); ROLLBACK TO s; SELECT cache_set($0, '2', cache => 'c'); UPDATE p SET value = 'x' WHERE key = $1; COMMIT",
    "BEGIN; SAVEPOINT s; UPDATE p SET value = 'x' WHERE key = $1; ROLLBACK TO s; UPDATE p SET value = 'y' WHERE key = $1; SELECT cache_set($0, '2', cache => 'c'); COMMIT",
    // A single statement, functions, and procedures that commit.
    "SELECT change($1), cache_set($0, '1', cache => 'c')",
    "SELECT cache_set($0, '1', cache => 'c'), change($1)",
    "DO $$ BEGIN UPDATE p SET value = 'x' WHERE key = $1; PERFORM cache_set($0, '1', cache => 'c'); END $$",
    "CALL change_both($1, $0)",
    // Prepared statements, before and after Postgres saves a generic plan for them.
    "BEGIN; EXECUTE change ($1); EXECUTE store ($0); COMMIT",
    "BEGIN; EXECUTE change ($1); EXECUTE store ($0); COMMIT; BEGIN; EXECUTE store ($0); EXECUTE change ($1); COMMIT",
    // MERGE, reference tables, several nodes, a trigger at the commit, and other isolation levels.
    "BEGIN; SELECT cache_set($0, '1', cache => 'c'); MERGE INTO p USING q ON p.key = q.key AND p.key = $1 WHEN MATCHED THEN UPDATE SET value = 'm'; COMMIT",
    "BEGIN; SELECT cache_set($0, '1', cache => 'c'); UPDATE reference SET value = 'x'; COMMIT",
    "BEGIN; SELECT cache_set($0, '1', cache => 'c'); UPDATE p SET value = 'x' WHERE key = $1; UPDATE p SET value = 'x' WHERE key = $2; COMMIT",
    "BEGIN; SELECT cache_set($0, '1', cache => 'c'); UPDATE p SET value = 'x'; COMMIT",
    "BEGIN; INSERT INTO deferred VALUES ($1); SELECT cache_set($0, '1', cache => 'c'); COMMIT",
    "BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE p SET value = 'x' WHERE key = $1; SELECT cache_set($0, '1', cache => 'c'); COMMIT",
    "BEGIN; UPDATE p SET value = 'x' WHERE key = $1; SELECT cache_set($0, '1', cache => 'c'); SET TRANSACTION READ ONLY; COMMIT",
    // The local write goes to a table that only this node has.
    "BEGIN; INSERT INTO own VALUES (1); SELECT cache_set($1, '1', cache => 'c'); COMMIT",
    "BEGIN; SELECT cache_set('k', '1', cache => 'beside'); SELECT cache_set($1, '1', cache => 'c'); COMMIT",
    // Citus evaluates the call before it begins its own statement.
    "INSERT INTO p VALUES ($1, cache_incr($0, cache => 'c')) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "INSERT INTO p VALUES ($1, cache_incr($2, cache => 'c')) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "INSERT INTO p VALUES ($1, cache_incr($0, cache => 'c')), ($0, cache_incr($2, cache => 'c')) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "UPDATE p SET value = as_if_stable($0) WHERE key = $1",
    "WITH w AS (INSERT INTO p VALUES ($1, cache_incr($0, cache => 'c')) ON CONFLICT (key) DO UPDATE SET value = excluded.value RETURNING 1) SELECT count(*) FROM w",
    "EXPLAIN (ANALYZE) INSERT INTO p VALUES ($1, cache_incr($0, cache => 'c')) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "INSERT INTO p SELECT $1, cache_incr($0, cache => 'c') ON CONFLICT (key) DO UPDATE SET value = excluded.value",
];

/// Statements that must commit in one phase, because only one node writes.
const IN_ONE: &[&str] = &[
    "BEGIN; SELECT cache_set($1, '1', cache => 'c'); SELECT cache_get($0, 'c'); COMMIT",
    "BEGIN; UPDATE p SET value = 'x' WHERE key = $1; SELECT cache_get($0, 'c'); COMMIT",
    "BEGIN; SELECT cache_fetch($0, 'SELECT 1', cache => 'c'); UPDATE p SET value = 'x' WHERE key = $1; COMMIT",
    "SELECT cache_set($1, '1', cache => 'c')",
];

fn tables(session: &mut Client) {
    session.run(
        "CREATE TABLE p (key text COLLATE \"C\" PRIMARY KEY, value text);
         SELECT create_distributed_table('p', 'key', colocate_with => 'c');
         CREATE TABLE q (key text COLLATE \"C\" PRIMARY KEY);
         SELECT create_distributed_table('q', 'key', colocate_with => 'c');
         CREATE TABLE reference (key text PRIMARY KEY, value text); SELECT create_reference_table('reference');
         INSERT INTO reference VALUES ('k', 'v');
         INSERT INTO p SELECT 'k' || i, 'v' FROM generate_series(1, 200) AS i; INSERT INTO q SELECT key FROM p;
         SELECT cache_set('k' || i, '1', cache => 'c') FROM generate_series(1, 200) AS i;
         SET citus.enable_ddl_propagation = off;
         CREATE TABLE own (id int); SELECT cache_create('beside');
         CREATE FUNCTION change(k text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN UPDATE p SET value = 'f' WHERE key = k; END $$;
         CREATE FUNCTION as_if_stable(k text) RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN cache_incr(k, cache => 'c'); END $$;
         CREATE PROCEDURE change_both(k text, l text) LANGUAGE plpgsql AS $$ BEGIN
           PERFORM cache_set(l, '1', cache => 'c'); UPDATE p SET value = '1' WHERE key = k; COMMIT;
           UPDATE p SET value = '2' WHERE key = k; PERFORM cache_set(l, '2', cache => 'c'); END $$;
         CREATE TABLE deferred (key text);
         CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM change(new.key); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION at_commit()",
    );
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn writes_on_this_node_and_another_commit_in_two_phases() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    tables(&mut sessions[0]);
    let mut watched = Watched::on(&nodes, a_key_of_each(&mut sessions));
    watched.session.run(
        "PREPARE change (text) AS UPDATE p SET value = 'p' WHERE key = $1;
         PREPARE store (text) AS SELECT cache_set($1, '3', cache => 'c');
         SET plan_cache_mode = force_generic_plan",
    );
    for statements in IN_TWO {
        let (prepared, once) = watched.phases(statements);
        assert!(
            prepared > 0 && once == 0,
            "{statements}: {prepared}, {once}"
        );
    }
    for statements in IN_ONE {
        let (prepared, once) = watched.phases(statements);
        assert!(
            prepared == 0 && once == 1,
            "{statements}: {prepared}, {once}"
        );
    }
    // COPY after a call, and a call after COPY.
    let [here, there] = [&watched.keys[0], &watched.keys[1]].map(String::clone);
    let store = format!("SELECT cache_set('{here}', 'v', cache => 'c')");
    for first in [true, false] {
        watched
            .session
            .run(&format!("DELETE FROM p WHERE key = '{there}'"));
        watched.notices.try_iter().for_each(drop);
        watched.session.run("BEGIN");
        if first {
            watched.session.run(&store);
        }
        let mut copy = watched.session.copy_in("COPY p FROM STDIN").unwrap();
        std::io::Write::write_all(&mut copy, format!("{there}\tcopied\n").as_bytes()).unwrap();
        copy.finish().unwrap();
        if !first {
            watched.session.run(&store);
        }
        watched.session.run("COMMIT");
        assert_eq!(watched.counted(), (1, 0));
    }
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn a_node_without_shards_commits_in_two_phases_too() {
    let nodes = super::nodes();
    let mut sessions = super::sessions(&nodes);
    sessions[0]
        .run("SELECT cache_create('c'); SELECT cache_distribute('c'); CREATE TABLE own (id int)");
    let group = "SELECT groupid FROM pg_dist_local_group";
    let group = sessions[1].number(group);
    let key = sessions[0].text(&format!(
        "SELECT 'k' || i FROM generate_series(1, 200) AS i WHERE pgcache.node_of('c', 'k' || i) = {group} LIMIT 1"
    ));
    let mut watched = Watched::on(&nodes, vec![key]);
    let both = "BEGIN; INSERT INTO own VALUES (1); SELECT cache_set($0, 'v', cache => 'c'); COMMIT";
    let (prepared, once) = watched.phases(both);
    assert!(prepared > 0 && once == 0, "{prepared}, {once}");
    let alone = "BEGIN; SELECT cache_set($0, 'v', cache => 'c'); COMMIT";
    assert_eq!(watched.phases(alone), (0, 1));
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn effects_of_a_failing_statement_are_rolled_back_on_every_node() {
    let (_nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('c'); SELECT cache_distribute('c')");
    tables(&mut sessions[0]);
    let keys = a_key_of_each(&mut sessions);
    for key in &keys {
        let insert = format!(
            "INSERT INTO p VALUES ('{}', cache_incr('n{key}', cache => 'c'))",
            keys[1]
        );
        refused(sessions[0].try_lines(&insert), "23505");
        let stored = format!("SELECT cache_get('n{key}', 'c')");
        assert_eq!(sessions[0].value(&stored), None);
    }
}
