//! A table `src`, and a cache `c` whose entries depend on its rows.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::database::Database;

/// Changes the row under the key `k`.
pub const UPDATE: &str = "UPDATE src SET v = 'new' WHERE k = 'k'";

/// A database with the source, in which `k` and `l` are `old`, and the cache.
pub fn with_source<'c>(cluster: &'c Cluster, storage: &str) -> Database<'c> {
    let database = cluster.database();
    let mut session = database.connect();
    session.run("CREATE TABLE src (k text PRIMARY KEY, v text)");
    session.run("INSERT INTO src VALUES ('k', 'old'), ('l', 'old')");
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    session.run("SELECT cache_depend('src', 'k', 'c')");
    database
}

/// A session that a statement which never ends does not keep for ever.
pub fn session(database: &Database) -> Client {
    let mut session = database.connect();
    session.run("SET statement_timeout = '60s'");
    session
}

/// How long five changes of the source take while four sessions run a statement on the entry again and again.
/// None of them may fail.
pub fn five_changes_among(database: &Database, statement: &str) -> Duration {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = session(database);
                while !done.load(SeqCst) {
                    session.run(statement);
                }
            });
        }
        sleep(Duration::from_millis(300));
        let mut writer = session(database);
        writer.run("SET statement_timeout = '8s'");
        let began = Instant::now();
        let mut failed = None;
        for number in 0..5 {
            failed = failed.or(writer
                .try_lines(&format!("UPDATE src SET v = '{number}' WHERE k = 'k'"))
                .err());
        }
        done.store(true, SeqCst);
        assert!(failed.is_none(), "{failed:?}");
        began.elapsed()
    })
}
