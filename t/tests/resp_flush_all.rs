//! Tests that FLUSHALL with table caches clears all caches or none.

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply};
use pgcache_tests::tables::{LOGGED, UNLOGGED, client_in, reply, send, send_together, start};
use pgcache_tests::wait::wait_until;

const OK: fn() -> Reply = || Reply::status("OK");

fn fill(clients: &mut [Client]) {
    for client in clients {
        assert_eq!(client.ask(&["MSET", "k", "v", "other", "w"]), OK());
        assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("v"));
    }
}

/// Connects a client to each database, as a role that may clear all caches.
fn clients(door: &Door) -> Vec<Client> {
    door.cluster.connect("postgres").run(&format!(
        "CREATE ROLE app LOGIN; GRANT ALL ON {CACHE}, {UNLOGGED}, {LOGGED} TO app"
    ));
    let client = |database| client_in(door, database, Some("app"));
    let mut clients: Vec<Client> = (0..3).map(client).collect();
    fill(&mut clients);
    clients
}

fn all_have(clients: &mut [Client], count: i64) {
    for client in clients {
        assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(count));
        let found = if count == 0 {
            Reply::Null
        } else {
            Reply::bulk("v")
        };
        assert_eq!(client.ask(&["GET", "k"]), found);
    }
}

#[test]
fn flushall_clears_memory_caches_and_tables_whichever_is_selected() {
    let door = start(&[]);
    let mut clients = clients(&door);
    for from in 0..3 {
        fill(&mut clients);
        send_together(
            &mut clients[from],
            &[&["FLUSHALL"], &["DBSIZE"], &["SET", "k", "v"]],
        );
        assert_eq!(reply(&mut clients[from]), OK());
        assert_eq!(reply(&mut clients[from]), Reply::Integer(0));
        assert_eq!(reply(&mut clients[from]), OK());
        assert_eq!(clients[from].ask(&["DEL", "k"]), Reply::Integer(1));
        all_have(&mut clients, 0);
    }
    for words in [&["FLUSHALL", "ASYNC"][..], &["FLUSHALL", "SYNC"]] {
        fill(&mut clients);
        assert_eq!(clients[0].ask(words), OK());
        all_have(&mut clients, 0);
    }
}

#[test]
fn flushall_clears_no_cache_if_one_may_not_be_cleared() {
    let door = start(&[]);
    let mut clients = clients(&door);
    let mut session = door.cluster.connect("postgres");
    for cache in [CACHE, UNLOGGED, LOGGED] {
        session.run(&format!("REVOKE TRUNCATE ON {cache} FROM app"));
        let words = clients[0].ask(&["FLUSHALL"]).error();
        assert!(words.starts_with("NOPERM"), "{words}");
        all_have(&mut clients, 2);
        session.run(&format!("GRANT TRUNCATE ON {cache} TO app"));
    }
    // This cache has a trigger that refuses the removal of its rows.
    session.run(&format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER refuse BEFORE TRUNCATE ON {LOGGED} FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
    ));
    let words = clients[0].ask(&["FLUSHALL"]).error();
    assert!(words.contains("not this one"), "{words}");
    all_have(&mut clients, 2);
    session.run(&format!("DROP TRIGGER refuse ON {LOGGED}"));
    assert_eq!(clients[0].ask(&["FLUSHALL"]), OK());
    all_have(&mut clients, 0);
}

#[test]
fn flushall_waits_for_a_locked_table_and_clears_nothing_before() {
    let door = start(&[]);
    let mut clients = clients(&door);
    let mut session = door.cluster.connect("postgres");
    session.run(&format!("BEGIN; SELECT count(*) FROM {LOGGED}"));
    let mut clears = client_in(&door, 0, Some("app"));
    send(&mut clears, &["FLUSHALL"]);
    let mut watcher = door.cluster.connect("postgres");
    wait_until("an executor waits for the table", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
    assert_eq!(clients[0].ask(&["GET", "k"]), Reply::bulk("v"));
    session.run("COMMIT");
    assert_eq!(reply(&mut clears), OK());
    all_have(&mut clients, 0);
}

#[test]
fn flushall_is_refused_inside_exec() {
    let door = start(&[]);
    let mut clients = clients(&door);
    for client in &mut clients[..2] {
        assert_eq!(client.ask(&["MULTI"]), OK());
        assert_eq!(client.ask(&["FLUSHALL"]), Reply::status("QUEUED"));
        let refused = match client.ask(&["EXEC"]) {
            Reply::Array(replies) => replies[0].clone().error(),
            other => other.error(),
        };
        assert!(refused.contains("EXEC"), "{refused}");
    }
    all_have(&mut clients, 2);
}

#[test]
fn a_refused_flushall_leaves_nothing_to_the_next() {
    let door = start(&[]);
    let mut clients = clients(&door);
    let mut session = door.cluster.connect("postgres");
    let mut clears = client_in(&door, 0, Some("app"));
    session.run(&format!("BEGIN; SELECT count(*) FROM {LOGGED}"));
    send(&mut clears, &["FLUSHALL"]);
    let mut watcher = door.cluster.connect("postgres");
    wait_until("an executor waits for the table", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
    watcher.run(&format!("REVOKE TRUNCATE ON {CACHE} FROM app"));
    session.run("COMMIT");
    let words = reply(&mut clears).error();
    assert!(words.starts_with("NOPERM"), "{words}");
    watcher.run(&format!("GRANT TRUNCATE ON {CACHE} TO app"));
    fill(&mut clients);
    assert_eq!(clears.ask(&["FLUSHALL"]), OK());
    all_have(&mut clients, 0);
}

/// Configures the served caches. Waits until the server uses the setting, which a new client's SELECT of the database
/// shows.
fn serve(door: &Door, caches: &[&str], database: u32, is_served: bool) {
    let mut session = door.cluster.connect("postgres");
    session.run(&format!(
        "ALTER SYSTEM SET pgcache.resp_caches = '{}'",
        caches.join(", ")
    ));
    session.run("SELECT pg_reload_conf()");
    let database = database.to_string();
    wait_until("the list of caches is read", || {
        (door.client().ask(&["SELECT", &database]) == OK()) == is_served
    });
}

/// Sends a FLUSHALL that waits for the logged table, and runs `meanwhile` during the wait.
fn while_it_waits(door: &Door, clears: &mut Client, meanwhile: impl FnOnce()) -> Reply {
    let mut session = door.cluster.connect("postgres");
    session.run(&format!("BEGIN; SELECT count(*) FROM {LOGGED}"));
    send(clears, &["FLUSHALL"]);
    let mut watcher = door.cluster.connect("postgres");
    wait_until("an executor waits for the table", || {
        watcher.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
    });
    meanwhile();
    session.run("COMMIT");
    reply(clears)
}

#[test]
fn flushall_clears_a_table_that_is_added_while_it_waits() {
    let door = start(&[]);
    let mut clients = clients(&door);
    let mut session = door.cluster.connect("postgres");
    session.run("SELECT cache_create('public.late'); GRANT ALL ON public.late TO app");
    session.run("SELECT cache_set('k', 'v', cache => 'public.late')");
    let mut clears = client_in(&door, 0, Some("app"));
    let done = while_it_waits(&door, &mut clears, || {
        serve(&door, &[CACHE, UNLOGGED, LOGGED, "public.late"], 3, true);
    });
    assert_eq!(done, OK());
    all_have(&mut clients, 0);
    assert_eq!(session.number("SELECT count(*) FROM public.late"), 0);
}

#[test]
fn flushall_looks_up_a_table_that_was_removed_from_the_list_and_added_again() {
    let door = start(&[]);
    let mut clients = clients(&door);
    let mut clears = client_in(&door, 0, Some("app"));
    let done = while_it_waits(&door, &mut clears, || serve(&door, &[CACHE], 2, false));
    assert_eq!(done, OK());
    serve(&door, &[CACHE, UNLOGGED, LOGGED], 2, true);
    fill(&mut clients);
    assert_eq!(clears.ask(&["FLUSHALL"]), OK());
    all_have(&mut clients, 0);
}
