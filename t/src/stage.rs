//! The staged server under test, which environment variables from `make test` name.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A server's programs, with the extension installed, and the folder for its clusters.
#[derive(Clone)]
pub struct Stage {
    pub bindir: PathBuf,
    pub run: PathBuf,
    /// Whether pg_cron is installed, so that its tests must run.
    pub cron: bool,
    /// The user that runs the server, or None if it is the user that runs the tests.
    user: Option<User>,
}

#[derive(Clone, Copy)]
struct User {
    id: u32,
    group: u32,
}

const HOW: &str = "is not set: run the tests with `make test` or `make upgrade-check`, which stage servers and name them";

impl Stage {
    /// Returns the stage of this run, which all tests share.
    pub fn current() -> &'static Stage {
        static STAGE: OnceLock<Stage> = OnceLock::new();
        STAGE.get_or_init(|| Stage::at(required("PGCACHE_BINDIR")))
    }

    /// Returns the stage of a later version, the target of dumps and upgrades.
    pub fn other() -> Stage {
        Stage::at(required("PGCACHE_BINDIR_2"))
    }

    fn at(bindir: String) -> Stage {
        let stage = Stage {
            bindir: bindir.into(),
            run: required("PGCACHE_RUN").into(),
            cron: optional("PGCACHE_CRON").as_deref() == Some("1"),
            user: optional("PGCACHE_SERVER_USER").map(|name| User::named(&name)),
        };
        std::fs::create_dir_all(&stage.run).expect("PGCACHE_RUN cannot be made");
        stage.give(&stage.run);
        stage
    }

    /// Makes the server's user the owner of a folder.
    pub fn give(&self, folder: &Path) {
        if let Some(user) = self.user {
            chown(folder, Some(user.id), Some(user.group)).expect("a folder cannot be given away");
        }
    }

    /// Returns a command that runs as the server's user, in a folder that this user may read.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(self.bindir.join(program));
        command.current_dir("/");
        if let Some(user) = self.user {
            command.uid(user.id).gid(user.group);
        }
        command
    }

    /// Parses `initdb (PostgreSQL) 15.13 ...` as `15`.
    pub fn major(&self) -> u32 {
        let version = succeed(self.command("postgres").arg("--version"));
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let digits: String = version
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().expect("a version begins with its major")
    }
}

impl User {
    fn named(name: &str) -> User {
        let number = |flag| {
            let output = succeed(Command::new("id").args([flag, name]));
            let number = String::from_utf8_lossy(&output.stdout).trim().parse();
            number.expect("id prints a number")
        };
        User {
            id: number("-u"),
            group: number("-g"),
        }
    }
}

/// Runs a command to its end, and fails unless it succeeds.
pub fn succeed(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot run: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn optional(variable: &str) -> Option<String> {
    std::env::var(variable)
        .ok()
        .filter(|value| !value.is_empty())
}

fn required(variable: &str) -> String {
    optional(variable).unwrap_or_else(|| panic!("{variable} {HOW}"))
}

/// Returns the library that moves a server's wall clock.
pub fn clock_library(stage: &Stage) -> PathBuf {
    let folder = succeed(stage.command("pg_config").arg("--pkglibdir")).stdout;
    PathBuf::from(String::from_utf8_lossy(&folder).trim()).join("pgcache_clock.so")
}
