//! Stops a cluster, or a pooler, and removes its folder when the tests no longer need it, however they end.
//!
//! Statics are never dropped and a killed test drops nothing. So each cluster has a small shell
//! beside it that waits for the end of a pipe, which the kernel closes when the test program is
//! gone. It has a process group of its own, so that the terminal's interrupt does not reach it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::stage::Stage;

/// Its end is certain from the making of this on, and comes with its drop.
pub struct Guard(Child);

/// A server that has crashed, but for a `kill -9`, which tests do, stands in a file that `make test` looks at.
const WAIT_AND_STOP: &str = r#"cat; "$0" stop -s -m immediate -D "$1/data"
grep -H -B 5 -E 'TRAP: |terminated by signal (4|6|7|8|11):' "$1/log" >>"$1/../crashes"; rm -rf "$1""#;
const START_WAIT_AND_KILL: &str = r#""$0" -q "$1/ini" & cat; kill -9 $!; rm -rf "$1""#;

impl Guard {
    /// A cluster, started by somebody else.
    pub fn over(stage: &Stage, folder: &Path) -> Guard {
        Guard::shell(stage, WAIT_AND_STOP, &stage.bindir.join("pg_ctl"), folder)
    }

    /// A pgbouncer with the file `ini` of this folder, which begins with the guard.
    pub fn with_pooler(stage: &Stage, program: &Path, folder: &Path) -> Guard {
        Guard::shell(stage, START_WAIT_AND_KILL, program, folder)
    }

    fn shell(stage: &Stage, script: &str, program: &Path, folder: &Path) -> Guard {
        let mut shell = stage.command("/bin/sh");
        shell.args(["-c", script]).arg(program).arg(folder);
        Guard(detached(&mut shell).spawn().expect("a shell can run"))
    }
}

fn detached(command: &mut Command) -> &mut Command {
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Nothing is left to be done about a guard that failed.
        let _ = self.0.wait();
    }
}
