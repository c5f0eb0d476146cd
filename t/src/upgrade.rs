//! Upgrades a cluster to another major version with pg_upgrade.

use std::process::Command;

use crate::cluster::Cluster;
use crate::stage::{Stage, succeed};

impl Cluster {
    /// Upgrades this cluster with pg_upgrade and its `options`. Returns the new cluster, which belongs to a later
    /// server and has these lines in its configuration. This cluster must be stopped; the new cluster is stopped, too.
    pub fn upgraded(&self, to: &Stage, options: &[&str], conf: &[&str]) -> Cluster {
        let new = Cluster::fresh(to, conf);
        // pg_upgrade requires checksums in both clusters or in neither. Version 18 turned them on by default.
        if to.major() >= 18 && self.stage.major() < 18 {
            let mut off = to.command("pg_checksums");
            succeed(off.arg("--disable").arg("-D").arg(new.data()));
        }
        run(self.pg_upgrade(&new).args(options).arg("--check"));
        run(self.pg_upgrade(&new).args(options));
        new
    }

    /// Returns the command of pg_upgrade. pg_upgrade writes to its working folder, which also has the sockets of both
    /// servers.
    fn pg_upgrade(&self, new: &Cluster) -> Command {
        let mut command = new.program("pg_upgrade");
        command.env_remove("PGHOST").current_dir(&new.folder);
        command.args(["--username", "postgres", "--jobs", "2"]);
        command.arg("--old-bindir").arg(&self.stage.bindir);
        command.arg("--new-bindir").arg(&new.stage.bindir);
        command.arg("--old-datadir").arg(self.data());
        command.arg("--new-datadir").arg(new.data());
        command.arg("--socketdir").arg(&new.folder);
        command
    }
}

/// Runs the command. Fails with its output and the log files that the output names, because one of the files contains
/// the reason.
fn run(command: &mut Command) {
    let output = command.output().expect("pg_upgrade can run");
    if output.status.success() {
        return;
    }
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    for file in said
        .clone()
        .split('"')
        .filter(|word| word.ends_with(".log"))
    {
        let log = std::fs::read_to_string(file).unwrap_or_default();
        said.push_str(&log);
    }
    panic!("pg_upgrade failed:\n{said}");
}
