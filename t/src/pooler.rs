//! Runs pgbouncer in transaction mode in front of a test's database, on its own unix socket.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};

use crate::database::Database;
use crate::reaper::Reaper;
use crate::stage::succeed;

const PORT: u16 = 6432;
/// The first version of pgbouncer that keeps a client's prepared statements in transaction mode.
const KEEPS_STATEMENTS: (u32, u32) = (1, 21);

/// A running pooler, which stops when this value is dropped.
pub struct Pooler {
    folder: PathBuf,
    database: String,
    /// Whether a client's prepared statements work on every server session.
    pub keeps_statements: bool,
    _reaper: Reaper,
}

impl Pooler {
    /// Starts a pooler with at most this many server sessions, which all clients share.
    pub fn before(database: &Database, sessions: u32) -> Pooler {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let (cluster, stage) = (&database.cluster.folder, &database.cluster.stage);
        let folder = cluster.join(format!("pool{number}"));
        std::fs::create_dir(&folder).expect("the cluster's folder is writable");
        stage.give(&folder);
        let program = program();
        let keeps_statements = version(&program) >= KEEPS_STATEMENTS;
        let mut ini = format!(
            "[databases]\n* = host={} port=5432 user=postgres\n[pgbouncer]\nlisten_addr =\n\
             listen_port = {PORT}\nunix_socket_dir = {}\nlogfile = {1}/log\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {sessions}\n",
            cluster.display(),
            folder.display()
        );
        if keeps_statements {
            ini += "max_prepared_statements = 100\n";
        }
        std::fs::write(folder.join("ini"), ini).expect("the folder is writable");
        let reaper = Reaper::with_pooler(stage, &program, &folder);
        let pooler = Pooler {
            folder,
            database: database.name.clone(),
            keeps_statements,
            _reaper: reaper,
        };
        pooler.wait_until_up();
        pooler
    }

    pub fn connect(&self) -> Client {
        self.try_connect()
            .unwrap_or_else(|error| panic!("no session: {error:?}\n{}", self.log()))
    }

    fn try_connect(&self) -> Result<Client, postgres::Error> {
        Config::new()
            .host_path(&self.folder)
            .port(PORT)
            .user("postgres")
            .dbname(&self.database)
            .connect(NoTls)
    }

    fn wait_until_up(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.try_connect().is_err() {
            assert!(
                Instant::now() < deadline,
                "the pooler did not start:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// Returns the path of pgbouncer. Also searches Debian's folder, which is not on every user's PATH.
fn program() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin"])
        .map(|folder| Path::new(folder).join("pgbouncer"))
        .find(|program| program.exists())
        .expect("pgbouncer is not there: scripts/need.sh pgbouncer installs it")
}

/// Parses `PgBouncer 1.18.0` as (1, 18).
fn version(program: &Path) -> (u32, u32) {
    let output = succeed(Command::new(program).arg("--version"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split(|c: char| !c.is_ascii_digit());
    let mut numbers = words.filter_map(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => panic!("pgbouncer --version says {text}"),
    }
}
