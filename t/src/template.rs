//! Data folders that the clusters of a run are copied from, because initdb takes seconds and copying its result does
//! not.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::stage::{Stage, succeed};

/// The template database, which has the extension.
pub const WITH_EXTENSION: &str = "pgcache_template";

/// The contents of a fresh data folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Template {
    /// The result of initdb.
    Bare,
    /// The result of initdb, and the database [`WITH_EXTENSION`].
    WithExtension,
}

/// Copies a fresh data folder to `data`.
pub fn copy_to(stage: &Stage, template: Template, data: &Path) {
    let template = made_for(stage, template);
    succeed(Command::new("cp").arg("-a").arg(&template).arg(data));
}

/// Returns the template of this server, which the first caller creates. Several test programs may create it at the same
/// time. So a template gets its name only when it is complete, and a program that finds the name taken discards its own
/// template.
fn made_for(stage: &Stage, kind: Template) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    let template = stage.run.join(match kind {
        Template::Bare => format!("template-{}", stage.major()),
        Template::WithExtension => {
            format!("template-{}-{:x}", stage.major(), scripts_of(stage))
        }
    });
    if !template.exists() {
        let fresh = stage
            .run
            .join(format!("template-of-{}", std::process::id()));
        initdb(stage, &fresh);
        if kind == Template::WithExtension {
            add_extension(stage, &fresh);
        }
        if std::fs::rename(&fresh, &template).is_err() {
            std::fs::remove_dir_all(&fresh).expect("the template is ours");
        }
    }
    template
}

fn initdb(stage: &Stage, data: &Path) {
    let mut initdb = stage.command("initdb");
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
    initdb.args(["--locale=C.UTF-8", "--no-sync", "--no-instructions"]);
    // Keep WAL segments small, because they are copied for each server.
    initdb.args(["--wal-segsize=1", "-D"]);
    succeed(initdb.arg(data));
}

/// Returns a hash of the extension's control file and scripts. The template's name contains it, so that different
/// scripts get different templates.
fn scripts_of(stage: &Stage) -> u64 {
    let folder = succeed(stage.command("pg_config").arg("--sharedir")).stdout;
    let folder = Path::new(String::from_utf8_lossy(&folder).trim()).join("extension");
    let files = std::fs::read_dir(folder).expect("the server has extensions");
    let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.retain(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("pgcache"))
    });
    paths.sort();
    let mut hasher = DefaultHasher::new();
    for path in paths {
        std::fs::read(path)
            .expect("the script can be read")
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// Creates [`WITH_EXTENSION`] with a running server. Does not use single-user mode, because there the extension would
/// get OIDs from the range of Postgres' own objects.
fn add_extension(stage: &Stage, data: &Path) {
    let sockets = format!(
        "-c listen_addresses= -c unix_socket_directories={}",
        data.display()
    );
    let control = |verb: &str, options: &[&str]| {
        let mut control = stage.command("pg_ctl");
        control
            .args([verb, "-s", "-w", "-D"])
            .arg(data)
            .args(options);
        control.stdout(Stdio::null()).stderr(Stdio::null());
        let status = control.status().expect("pg_ctl can run");
        assert!(status.success(), "pg_ctl {verb} over the template");
    };
    let run = |database: &str, sql: &str| {
        let mut psql = stage.command("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]);
        psql.arg("-h").arg(data).args(["-d", database, "-c", sql]);
        succeed(&mut psql);
    };
    control("start", &["-o", &sockets, "-l", "/dev/null"]);
    run("postgres", &format!("CREATE DATABASE {WITH_EXTENSION}"));
    run(WITH_EXTENSION, "CREATE EXTENSION pgcache");
    control("stop", &["-m", "fast"]);
}
