//! A table `src`, and a cache `c` whose entries depend on its rows.

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::database::Database;

/// The statement that changes the row under the key `k`.
pub const UPDATE: &str = "UPDATE src SET v = 'new' WHERE k = 'k'";

/// Creates a database with the cache and the source, in which `k` and `l` have the value `old`.
pub fn with_source<'c>(cluster: &'c Cluster, storage: &str) -> Database<'c> {
    let database = cluster.database();
    let mut session = database.connect();
    session.run("CREATE TABLE src (k text PRIMARY KEY, v text)");
    session.run("INSERT INTO src VALUES ('k', 'old'), ('l', 'old')");
    session.run(&format!("SELECT cache_create('c', storage => '{storage}')"));
    session.run("SELECT cache_depend('src', 'k', 'c')");
    database
}

/// Opens a session with a statement timeout, so that a statement that never ends fails the test.
pub fn session(database: &Database) -> Client {
    let mut session = database.connect();
    session.run("SET statement_timeout = '60s'; SET pgcache.fetch_wait = '10min'");
    session
}
