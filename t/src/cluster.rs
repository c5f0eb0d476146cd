//! A throwaway cluster, with its own folder for data, log and socket. It has no port on the network.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use postgres::error::DbError;
use postgres::{Client, Config, NoTls};

use crate::pool::{self, Recipe};
use crate::reaper::Reaper;
use crate::stage::{Stage, clock_library, succeed};
use crate::template::{self, Template};

/// A server with its own folder.
pub struct Cluster {
    pub stage: Stage,
    /// The folder of the socket, for a client program.
    pub folder: PathBuf,
    /// Whether the cluster has the template database `template::WITH_EXTENSION`, from which `CREATE DATABASE` copies
    /// the extension.
    pub(crate) has_template: bool,
    /// The port of the Redis protocol, if the server has one.
    pub(crate) port: u16,
    /// The library that moves the server's wall clock, or None if the server uses the true time.
    clock: Option<PathBuf>,
    /// Additional variables of the server's environment.
    environment: &'static [(&'static str, &'static str)],
    /// Whether a test has stopped, killed or configured this server, so that no other test may use it.
    is_spoiled: AtomicBool,
    /// Internal errors that the test provokes.
    provoked: Mutex<Vec<&'static str>>,
    /// The offset in the log at which the current test begins.
    log_from: AtomicUsize,
    /// The guard that stops the server, or None if the server was stopped.
    reaper: Mutex<Option<Reaper>>,
}

/// The mode of a shutdown.
#[derive(Clone, Copy)]
pub enum Shutdown {
    Fast,
    Immediate,
    /// Waits until sessions have ended.
    Smart,
}

/// Settings of every test server. Commits do not wait for the disk, because the tests' data is thrown away. Deadlocks
/// are detected at once. No worker sweeps while a test runs.
const BASE: &[&str] = &[
    "listen_addresses = ''",
    "log_line_prefix = '%m [%p] %e '",
    "fsync = off",
    "shared_buffers = 32MB",
    "max_connections = 150",
    "max_prepared_transactions = 10",
    "deadlock_timeout = 200ms",
    "pgcache.expire_interval = 0",
];

impl Cluster {
    /// Returns a server with the standard settings, the same server at each call of a test.
    pub fn shared() -> &'static Cluster {
        Cluster::with(&[])
    }

    /// Returns a server with these lines in its configuration. All calls of a test with the same lines return the same
    /// server.
    pub fn with(conf: &[&str]) -> &'static Cluster {
        pool::same(Recipe::server(conf))
    }

    /// Returns a server with these lines in its configuration, a different server at each call.
    pub fn start(conf: &[&str]) -> &'static Cluster {
        pool::another(Recipe::server(conf))
    }

    /// Creates and starts a cluster with the programs of this stage.
    pub fn start_on(stage: &Stage, conf: &[&str]) -> Cluster {
        let cluster = Cluster::fresh(stage, conf);
        cluster.up();
        cluster
    }

    /// Returns a server that only this test uses.
    pub fn own(conf: &[&str]) -> Cluster {
        Cluster::start_on(Stage::current(), conf)
    }

    /// Returns a cluster with these lines in its configuration, not yet started.
    pub fn stopped(conf: &[&str]) -> Cluster {
        Cluster::fresh(Stage::current(), conf)
    }

    /// Returns a cluster of this stage that is configured and not yet started.
    pub(crate) fn fresh(stage: &Stage, conf: &[&str]) -> Cluster {
        Cluster::prepare(stage).configured(Template::Bare, conf)
    }

    /// Returns a cluster for the pool, not yet started. Its databases are copied from a template with the extension,
    /// unless workers would visit the template.
    pub(crate) fn for_pool(conf: &[&str]) -> Cluster {
        let is_visited = conf.iter().any(|line| line.contains("expire_interval"));
        let template = match is_visited {
            true => Template::Bare,
            false => Template::WithExtension,
        };
        Cluster::prepare(Stage::current()).configured(template, conf)
    }

    /// Starts a cluster whose wall clock [`Cluster::move_clock`] can move.
    pub fn start_with_clock(conf: &[&str]) -> Cluster {
        let stage = Stage::current();
        let cluster = Cluster {
            clock: Some(clock_library(stage)),
            ..Cluster::prepare(stage)
        };
        let cluster = cluster.configured(Template::Bare, conf);
        cluster.up();
        cluster
    }

    /// Starts a cluster with variables in the server's environment.
    pub fn start_in(
        environment: &'static [(&'static str, &'static str)],
        conf: &[&str],
    ) -> Cluster {
        let cluster = Cluster {
            environment,
            ..Cluster::prepare(Stage::current())
        };
        let cluster = cluster.configured(Template::Bare, conf);
        cluster.up();
        cluster
    }

    /// Sets the server's wall clock to the true time plus this many seconds.
    pub fn move_clock(&self, seconds: i64) {
        let next = self.folder.join("clock.next");
        std::fs::write(&next, seconds.to_string()).expect("the folder is ours");
        std::fs::rename(&next, self.folder.join("clock")).expect("the folder is ours");
    }

    /// Holds sessions in the window of `pgcache.pause_window` when they reach it, or releases them. Only a library with
    /// the cargo feature `pauses` has these windows.
    pub fn hold_windows(&self, holds: bool) {
        self.spoil();
        let file = self.data().join("pgcache.hold");
        let done = match holds {
            true => std::fs::write(file, ""),
            false => std::fs::remove_file(file),
        };
        done.expect("the folder is ours");
    }

    /// Configures the cluster with a new data folder.
    fn configured(mut self, template: Template, conf: &[&str]) -> Cluster {
        template::copy_to(&self.stage, template, &self.data());
        self.has_template = template == Template::WithExtension;
        self.configure(BASE);
        if std::env::var("PGCACHE_PRELOAD").is_ok_and(|preload| preload == "1") {
            self.configure(&["shared_preload_libraries = 'pgcache'"]);
        }
        if let Ok(fault) = std::env::var("PGCACHE_FAULT") {
            self.configure(&[&format!("pgcache.fault = '{fault}'")]);
        }
        if let Ok(path) = std::env::var("PGCACHE_TABLE_PATH") {
            self.configure(&[&format!("pgcache.table_path = '{path}'")]);
        }
        self.configure(conf);
        self
    }

    /// Creates a hot standby that follows this cluster.
    pub fn standby(&self) -> Cluster {
        self.backed_up(&["--write-recovery-conf"])
    }

    /// Creates a separate server from a backup of this cluster.
    pub fn restored(&self) -> Cluster {
        self.backed_up(&[])
    }

    fn backed_up(&self, options: &[&str]) -> Cluster {
        let copy = Cluster::prepare(&self.stage);
        let mut backup = self.program("pg_basebackup");
        backup
            .args(["--checkpoint=fast", "--no-sync"])
            .args(options);
        succeed(backup.arg("-D").arg(copy.data()));
        copy.configure(&[]);
        copy.up();
        copy
    }

    /// Creates a cluster's folder with its reaper. The folder has no data yet.
    fn prepare(stage: &Stage) -> Cluster {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = stage.run.join(format!("{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).expect("PGCACHE_RUN is writable");
        stage.give(&folder);
        Cluster {
            stage: stage.clone(),
            has_template: false,
            port: 0,
            clock: None,
            environment: &[],
            is_spoiled: AtomicBool::new(false),
            provoked: Mutex::default(),
            log_from: AtomicUsize::new(0),
            reaper: Mutex::new(Some(Reaper::over(stage, &folder))),
            folder,
        }
    }

    /// Keeps this server from other tests, because the changes of this test cannot be undone.
    pub fn spoil(&self) {
        self.is_spoiled.store(true, Ordering::Relaxed);
    }

    /// Allows an internal error with this text in the log, because the test provokes it.
    pub fn provokes(&self, words: &'static str) {
        let mut provoked = self
            .provoked
            .lock()
            .expect("no thread panics with these locked");
        provoked.push(words);
    }

    /// Returns the first PANIC or internal error in the log that the test did not provoke. Only a defect raises one.
    pub(crate) fn bad_line(&self) -> Option<String> {
        let provoked = self
            .provoked
            .lock()
            .expect("no thread panics with these locked");
        let log = self.log_text();
        log.lines()
            .filter(|line| {
                [" PANIC: ", " XX000 ERROR: ", " XX000 FATAL: "]
                    .iter()
                    .any(|words| line.contains(words))
            })
            .find(|line| !provoked.iter().any(|words| line.contains(words)))
            .map(str::to_owned)
    }

    pub(crate) fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Relaxed)
    }

    /// Stops the server and removes its folder.
    pub(crate) fn retire(&self) {
        let reaper = self.reaper.lock().map(|mut reaper| reaper.take());
        drop(reaper);
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Adds lines to the configuration, which take effect at the next start.
    pub fn configure(&self, lines: &[&str]) {
        self.spoil();
        let file = self.data().join("postgresql.conf");
        let mut text = std::fs::read_to_string(&file).expect("every cluster has its configuration");
        let socket = format!("unix_socket_directories = '{}'", self.folder.display());
        for line in lines.iter().copied().chain([socket.as_str()]) {
            text.push_str(line);
            text.push('\n');
        }
        std::fs::write(&file, text).expect("the configuration is ours");
    }

    /// Starts the server and waits until it accepts connections.
    pub fn up(&self) {
        assert!(
            self.try_up(),
            "the server did not start:\n{}",
            self.log_text()
        );
    }

    /// Starts the server. Returns false if it does not come up.
    pub fn try_up(&self) -> bool {
        let mut start = self.control("start");
        start.args(["-w", "-l"]).arg(self.log());
        // Runs the server inside another program, as scripts/valgrind.sh needs.
        if let Some(program) = std::env::var_os("PGCACHE_POSTGRES") {
            start.arg("-p").arg(program);
        }
        let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.expect("pg_ctl can run").success()
    }

    /// Stops the server and waits until it has stopped.
    pub fn down(&self, how: Shutdown) {
        self.spoil();
        let mode = match how {
            Shutdown::Fast => "fast",
            Shutdown::Immediate => "immediate",
            Shutdown::Smart => "smart",
        };
        succeed(self.control("stop").args(["-w", "-m", mode]));
    }

    pub fn restart(&self, how: Shutdown) {
        self.down(how);
        self.up();
    }

    /// Promotes a standby and waits until it accepts writes.
    pub fn promote(&self) {
        self.spoil();
        succeed(self.control("promote").arg("-w"));
    }

    fn control(&self, verb: &str) -> Command {
        let mut command = self.stage.command("pg_ctl");
        command.args([verb, "-s", "-D"]).arg(self.data());
        command.envs(self.environment.iter().copied());
        if let Some(library) = &self.clock {
            command.env("LD_PRELOAD", library);
            command.env("PGCACHE_CLOCK", self.folder.join("clock"));
        }
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Returns the part of the server's log that was written since the test took the server.
    pub fn log_text(&self) -> String {
        let all = self.whole_log();
        let from = self.log_from.load(Ordering::Relaxed);
        all.get(from..).unwrap_or_default().to_owned()
    }

    fn whole_log(&self) -> String {
        std::fs::read(self.log())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Records that a test begins to use this server.
    pub(crate) fn taken(&self) {
        self.is_spoiled.store(false, Ordering::Relaxed);
        self.provoked
            .lock()
            .expect("no thread panics with these locked")
            .clear();
        self.log_from
            .store(self.whole_log().len(), Ordering::Relaxed);
    }

    /// Kills (`kill -9`) the backend with this pid, which `pg_backend_pid()` returned.
    pub fn kill_backend(&self, pid: i32) {
        assert!(self.try_kill_backend(pid), "not a backend of this cluster");
    }

    /// Kills a server process that may have ended already. Returns whether it existed.
    pub fn try_kill_backend(&self, pid: i32) -> bool {
        self.spoil();
        // Uses the shell's builtin kill, because a small system has no such program.
        parent_of(pid) == Some(self.postmaster())
            && Command::new("sh")
                .args(["-c", "kill -9 \"$0\"", &pid.to_string()])
                .output()
                .is_ok_and(|output| output.status.success())
    }

    /// Returns the processes that the server has started, background workers included.
    pub fn processes(&self) -> Vec<i32> {
        let server = Some(self.postmaster());
        let there = std::fs::read_dir("/proc").expect("Linux lists its processes");
        let numbers = there.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter(|&pid| parent_of(pid) == server).collect()
    }

    fn postmaster(&self) -> i32 {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let file = file.expect("a running server has a pid file");
        let first = file
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        first.expect("a pid file begins with the pid")
    }

    /// Waits until the server, which recovers from a crash by itself, accepts sessions again.
    pub fn wait_until_up(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.try_connect("postgres", "postgres").is_err() {
            assert!(
                Instant::now() < deadline,
                "the server is not back:\n{}",
                self.log_text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn connect(&self, database: &str) -> Client {
        self.connect_as("postgres", database)
    }

    pub fn connect_as(&self, role: &str, database: &str) -> Client {
        self.try_connect(role, database)
            .unwrap_or_else(|error| panic!("no session in {database} for {role}: {error:?}"))
    }

    pub fn try_connect(&self, role: &str, database: &str) -> Result<Client, postgres::Error> {
        Config::new()
            .host_path(&self.folder)
            .user(role)
            .dbname(database)
            .connect(NoTls)
    }

    /// Opens a session as superuser. Also returns a receiver of its notices.
    pub fn connect_with_notices(&self, database: &str) -> (Client, Receiver<DbError>) {
        let (sender, notices) = channel();
        let session = Config::new()
            .host_path(&self.folder)
            .user("postgres")
            .dbname(database)
            // The test may have dropped the receiver.
            .notice_callback(move |notice| drop(sender.send(notice)))
            .connect(NoTls)
            .unwrap_or_else(|error| panic!("no session in {database}: {error:?}"));
        (session, notices)
    }

    /// Returns the command of a client program of the server's version that connects to this cluster as superuser.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.stage.command(program);
        command
            .env("PGHOST", &self.folder)
            .env("PGUSER", "postgres");
        command.env_remove("PGPORT").env_remove("PGDATABASE");
        command
    }
}

/// Reads the fourth field of /proc/PID/stat; the second is a name in parentheses, which may contain spaces.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}
