//! Stops a cluster, or a pooler, and removes its folder when the tests no longer need it, even if the tests are killed.
//!
//! Rust never drops statics, and a killed test drops nothing. So a small shell process beside each cluster waits for
//! the end of a pipe, which the kernel closes when the test program ends. The shell has its own process group, so that
//! an interrupt from the terminal does not reach it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::stage::Stage;

/// A guard that stops a cluster or a pooler when it is dropped, or when the test program ends in any other way.
pub struct Reaper(Child);

/// Waits for the end of the pipe and stops the server. Records a crash of the server in a file that `make test` reads,
/// unless it was `kill -9`, which tests use.
const WAIT_AND_STOP: &str = r#"cat; "$0" stop -s -m immediate -D "$1/data"
grep -H -B 5 -E 'TRAP: |terminated by signal (4|6|7|8|11):' "$1/log" >>"$1/../crashes"; rm -rf "$1""#;
const START_WAIT_AND_KILL: &str = r#""$0" -q "$1/ini" & cat; kill -9 $!; rm -rf "$1""#;

impl Reaper {
    /// Watches a cluster that the caller starts.
    pub fn over(stage: &Stage, folder: &Path) -> Reaper {
        Reaper::shell(stage, WAIT_AND_STOP, &stage.bindir.join("pg_ctl"), folder)
    }

    /// Starts pgbouncer with the file `ini` of this folder, and watches it.
    pub fn with_pooler(stage: &Stage, program: &Path, folder: &Path) -> Reaper {
        Reaper::shell(stage, START_WAIT_AND_KILL, program, folder)
    }

    fn shell(stage: &Stage, script: &str, program: &Path, folder: &Path) -> Reaper {
        let mut shell = stage.command("/bin/sh");
        shell.args(["-c", script]).arg(program).arg(folder);
        Reaper(detached(&mut shell).spawn().expect("a shell can run"))
    }
}

fn detached(command: &mut Command) -> &mut Command {
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // A failure of the shell cannot be repaired here.
        let _ = self.0.wait();
    }
}
