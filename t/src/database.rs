//! A database for one test.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::stage::succeed;
use crate::template::WITH_EXTENSION;

pub struct Database<'c> {
    pub cluster: &'c Cluster,
    pub name: String,
}

impl Cluster {
    /// Creates a database with the extension.
    pub fn database(&self) -> Database<'_> {
        if self.has_template {
            return self.empty_database(&format!("TEMPLATE {WITH_EXTENSION}"));
        }
        let database = self.empty_database("");
        let mut session = database.connect();
        session
            .batch_execute("CREATE EXTENSION pgcache")
            .expect("the extension can be made");
        database
    }

    /// Creates a database without the extension. `options` are those of CREATE DATABASE.
    pub fn empty_database(&self, options: &str) -> Database<'_> {
        let name = unique("d");
        self.connect("postgres")
            .batch_execute(&format!("CREATE DATABASE {name} {options}"))
            .expect("a database can be made");
        Database {
            cluster: self,
            name,
        }
    }

    /// Creates a role that may log in.
    pub fn role(&self) -> String {
        let name = unique("r");
        self.connect("postgres")
            .batch_execute(&format!("CREATE ROLE {name} LOGIN"))
            .expect("a role can be made");
        name
    }
}

impl Database<'_> {
    pub fn connect(&self) -> Client {
        self.cluster.connect(&self.name)
    }

    pub fn connect_as(&self, role: &str) -> Client {
        self.cluster.connect_as(role, &self.name)
    }

    /// Makes later sessions load the library if the server does not preload it. Without the library, plain SQL sees
    /// expired rows until a call of pgcache loads it.
    pub fn loads_the_library(&self) {
        let name = &self.name;
        self.connect().run(&format!(
            "ALTER DATABASE \"{name}\" SET session_preload_libraries = 'pgcache'"
        ));
    }

    /// Dumps the database as SQL and restores it in an empty database.
    pub fn copy_to(&self, to: &Database) {
        let mut dump = self.cluster.program("pg_dump");
        let dump = succeed(dump.args(["-d", &self.name]));
        let file = self.cluster.folder.join(format!("{}.sql", self.name));
        std::fs::write(&file, dump.stdout).expect("the folder is writable");
        let mut psql = self.cluster.program("psql");
        psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &to.name, "-f"]);
        succeed(psql.arg(&file).stdin(Stdio::null()));
    }
}

fn unique(prefix: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}{}", MADE.fetch_add(1, Ordering::Relaxed))
}
