//! Tests caches that a subscription of logical replication writes: no entry is lost on the subscriber, because only the
//! publisher removes expired rows.

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::database::Database;
use pgcache_tests::wait::wait_until;
use postgres::Client;

const LOGICAL: &str = "wal_level = logical";
const OFTEN: &str = "pgcache.expire_interval = '200ms'";

/// A publisher's database and a subscriber's, on one server.
struct Pair {
    publisher: Database<'static>,
    subscriber: Database<'static>,
    source: Client,
    target: Client,
}

impl Pair {
    /// Makes two databases on a server with these lines in its configuration, and runs `tables` in both.
    fn with(lines: &[&str], tables: &str) -> Pair {
        let cluster = Cluster::hot_with(&[&[LOGICAL], lines].concat());
        let (publisher, subscriber) = (cluster.database(), cluster.database());
        let (mut source, mut target) = (publisher.connect(), subscriber.connect());
        for session in [&mut source, &mut target] {
            session.run(tables);
        }
        Pair {
            publisher,
            subscriber,
            source,
            target,
        }
    }

    /// Subscribes to a publication of these objects.
    fn subscribe(&mut self, objects: &str) {
        self.prepare(objects);
        self.create_subscription();
    }

    /// Publishes these objects, and makes the slot. CREATE SUBSCRIPTION cannot make it, because the slot would wait for
    /// all transactions of the server, that of the statement included.
    fn prepare(&mut self, objects: &str) {
        let slot = self.slot();
        self.source
            .run(&format!("CREATE PUBLICATION p FOR {objects}"));
        self.source.run(&format!(
            "SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
        ));
    }

    fn create_subscription(&mut self) {
        let (name, slot) = (&self.publisher.name, self.slot());
        self.target.run(&format!(
            "CREATE SUBSCRIPTION {slot} CONNECTION 'host={} user=postgres dbname={name}' PUBLICATION p \
             WITH (create_slot = false, copy_data = false)",
            self.publisher.cluster.folder.display()
        ));
    }

    /// The name of the slot and of the subscription.
    fn slot(&self) -> String {
        format!("of_{}", self.subscriber.name)
    }

    fn unsubscribe(&mut self) {
        let subscription = self.slot();
        self.target
            .run(&format!("DROP SUBSCRIPTION {subscription}"));
    }

    /// Runs a statement on the publisher, and waits until the subscriber has applied it.
    fn publish(&mut self, sql: &str) {
        self.source.run(sql);
        let behind = format!(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}' \
             AND confirmed_flush_lsn < '{}'",
            self.slot(),
            self.source.text("SELECT pg_current_wal_insert_lsn()")
        );
        let source = &mut self.source;
        wait_until("the change is applied", || source.number(&behind) == 0);
    }
}

/// Returns the keys of a table, expired or not.
fn rows(session: &mut Client, table: &str) -> Vec<String> {
    session.lines(&format!(
        "BEGIN; SET LOCAL pgcache.show_expired = on; SELECT key FROM {table} ORDER BY key; COMMIT"
    ))
}

fn wait_until_expired(session: &mut Client, key: &str) {
    let get = format!("SELECT cache_get('{key}', 'c') IS NULL");
    wait_until("it expires", || session.holds(&get));
}

/// The publisher overwrites expired rows by UPDATE, and the apply worker skips an UPDATE whose row is missing.
#[test]
fn an_entry_set_again_after_it_expired_reaches_the_subscriber() {
    let mut pair = Pair::with(&[], "SELECT cache_create('c', storage => 'logged')");
    pair.subscribe("TABLE c");
    for set in [
        "SELECT cache_set('k', 'new', '1 hour', 'c')",
        "SELECT cache_add('k', 'new', '1 hour', 'c')",
        "SELECT cache_fetch('k', $$SELECT 'new'$$, '1 hour', 'c')",
        "INSERT INTO c (key, value) VALUES ('k', 'new') ON CONFLICT (key) DO UPDATE SET value = 'new'",
        "INSERT INTO c (key, value) VALUES ('k', 'new')",
    ] {
        pair.publish("SELECT cache_set('k', 'old', '50 ms', 'c')");
        wait_until_expired(&mut pair.target, "k");
        for sweep in [
            "SELECT cache_expire('c')",
            "SELECT cache_expire()",
            "SELECT removed FROM pgcache.expire_for('1 s')",
        ] {
            assert_eq!(pair.target.number(sweep), 0, "{sweep}");
        }
        pair.publish(set);
        let get = "SELECT cache_get('k', 'c')";
        assert_eq!(pair.target.value(get).as_deref(), Some("new"), "{set}");
        pair.publish("SELECT cache_delete('k', 'c')");
    }
    // The removals of the publisher's sweep are replicated.
    pair.publish("SELECT cache_set('k', 'old', '50 ms', 'c')");
    wait_until_expired(&mut pair.source, "k");
    pair.publish("SELECT cache_expire('c')");
    assert_eq!(rows(&mut pair.target, "c"), [""; 0]);
    pair.unsubscribe();
}

#[test]
fn a_subscriber_trims_no_rows_of_the_publisher() {
    let mut pair = Pair::with(&[], "SELECT cache_create('c', storage => 'logged')");
    pair.target
        .run("SELECT cache_alter('c', max_entries => 2); SELECT cache_tune('c', max_bytes => 100)");
    pair.subscribe("TABLE c");
    pair.publish(
        "SELECT cache_set(i::text, repeat('x', 50), cache => 'c') FROM generate_series(1, 9) AS i",
    );
    assert_eq!(pair.target.number("SELECT cache_expire('c')"), 0);
    pair.publish("SELECT cache_set(i::text, 'new', cache => 'c') FROM generate_series(1, 9) AS i");
    let new = "SELECT count(*) FROM c WHERE value = 'new'";
    assert_eq!(pair.target.number(new), 9);
    pair.unsubscribe();
    pair.target.run("SELECT cache_expire('c')");
    assert_eq!(pair.target.number("SELECT count(*) FROM c"), 2);
}

#[test]
fn the_worker_leaves_subscribed_rows_until_the_subscription_ends() {
    let tables = "SELECT cache_create('c', storage => 'logged'), cache_create('own')";
    let mut pair = Pair::with(&[OFTEN], tables);
    pair.source
        .run("SELECT cache_alter('c', grace => '1 hour')"); // the publisher's worker keeps the row
    pair.subscribe("TABLE c");
    pair.publish("SELECT cache_set('k', 'old', '50 ms', 'c')");
    wait_until_expired(&mut pair.target, "k");
    for round in 0..3 {
        pair.target
            .run("SELECT cache_set('k', 'old', '1 ms', 'own')");
        let target = &mut pair.target;
        wait_until("a visit", || rows(target, "own").is_empty());
        assert_eq!(rows(target, "c"), ["k"], "{round}");
    }
    // A disabled subscription may be enabled again, and its updates arrive then.
    let subscription = pair.slot();
    pair.target
        .run(&format!("ALTER SUBSCRIPTION {subscription} DISABLE"));
    assert_eq!(pair.target.number("SELECT cache_expire('c')"), 0);
    pair.unsubscribe();
    let target = &mut pair.target;
    wait_until("the worker sweeps again", || rows(target, "c").is_empty());
}

/// `cache_expire` waits in a trigger, in the first of several chunks, while the subscription is made.
#[test]
fn a_running_sweep_stops_at_a_new_subscription() {
    let mut pair = Pair::with(&[], "SELECT cache_create('c', storage => 'logged')");
    pair.target.run(
        "INSERT INTO c SELECT i, repeat('x', 1900), '-infinity' FROM generate_series(1, 3000) AS i;
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END$$;
         CREATE TRIGGER wait BEFORE DELETE ON c FOR EACH ROW WHEN (OLD.key = '1') EXECUTE FUNCTION wait();
         SELECT pg_advisory_lock(1)",
    );
    pair.prepare("TABLE c");
    let mut sweeper = pair.subscriber.connect();
    let sweep = std::thread::spawn(move || sweeper.number("SELECT cache_expire('c')"));
    let target = &mut pair.target;
    wait_until("the sweep waits", || {
        target.holds(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
        )
    });
    pair.create_subscription();
    pair.target.run("SELECT pg_advisory_unlock(1)");
    let removed = sweep.join().expect("it ends");
    let left = rows(&mut pair.target, "c").len() as i64;
    assert_eq!(removed + left, 3000);
    assert!(removed > 0 && left > 0, "{removed} removed, {left} left");
    pair.unsubscribe();
}

/// The tables that have a row in pg_subscription_rel are those that the publisher names: partitions, or a table above
/// them.
#[test]
fn a_sweep_leaves_only_subscribed_partitions_alone() {
    let mut pair = Pair::with(
        &[],
        "CREATE TABLE leaf (key text PRIMARY KEY, value text, expires_at timestamptz);
         CREATE TABLE root (LIKE leaf INCLUDING ALL) PARTITION BY LIST (key);
         CREATE TABLE middle PARTITION OF root DEFAULT PARTITION BY LIST (key);
         CREATE TABLE below PARTITION OF middle DEFAULT;
         CREATE TABLE whole (LIKE leaf INCLUDING ALL) PARTITION BY LIST (key);
         ALTER TABLE whole ATTACH PARTITION leaf FOR VALUES IN ('k');
         CREATE TABLE own PARTITION OF whole DEFAULT;
         SELECT cache_attach('whole'), cache_attach('root')",
    );
    pair.source
        .run("CREATE PUBLICATION rooted FOR TABLE root WITH (publish_via_partition_root)");
    pair.target.run(
        "INSERT INTO whole VALUES ('k', 'old', '-infinity'), ('o', 'old', '-infinity');
         INSERT INTO root VALUES ('k', 'old', '-infinity')",
    );
    pair.subscribe("TABLE leaf");
    let slot = pair.slot();
    pair.target.run(&format!(
        "ALTER SUBSCRIPTION {slot} ADD PUBLICATION rooted WITH (copy_data = false)"
    ));
    let listed = "SELECT srrelid::regclass FROM pg_subscription_rel ORDER BY 1::text";
    assert_eq!(pair.target.lines(listed), ["leaf", "root"]);
    assert_eq!(pair.target.number("SELECT cache_expire('whole')"), 1);
    assert_eq!(rows(&mut pair.target, "whole"), ["k"]);
    assert_eq!(pair.target.number("SELECT cache_expire('root')"), 0);
    pair.unsubscribe();
    assert_eq!(pair.target.number("SELECT cache_expire()"), 2);
}
