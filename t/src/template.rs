//! initdb takes seconds, a copy of its result does not: one template for all clusters of a run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::stage::{Stage, succeed};

/// Copies a fresh data folder to `data`.
pub fn copy_to(stage: &Stage, data: &Path) {
    let template = made_for(stage);
    succeed(Command::new("cp").arg("-a").arg(&template).arg(data));
}

/// The template of this server, made when it is not there. Other runs may make it at the same time,
/// so it gets its name when it is complete, and whoever comes second throws their own away.
fn made_for(stage: &Stage) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    let template = stage.run.join(format!("template-{}", stage.major()));
    if !template.exists() {
        let fresh = stage
            .run
            .join(format!("template-of-{}", std::process::id()));
        initdb(stage, &fresh);
        if std::fs::rename(&fresh, &template).is_err() {
            std::fs::remove_dir_all(&fresh).expect("the template is ours");
        }
    }
    template
}

fn initdb(stage: &Stage, data: &Path) {
    let mut initdb = stage.command("initdb");
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
    initdb.args(["--locale=C.UTF-8", "--no-sync", "--no-instructions", "-D"]);
    succeed(initdb.arg(data));
}
