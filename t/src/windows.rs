//! Holds a session in a window of a protocol. The library has windows only if it was built with the cargo feature
//! `pauses` (scripts/storm.sh, scripts/power.sh).

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::wait::wait_until;

// The numbers of `pg::session::pause::Window`.
pub const MARK_TO_VISIBLE: u32 = 0;
pub const VISIBLE_TO_UNMARK: u32 = 1;
pub const TOKEN_TO_SNAPSHOT: u32 = 2;
pub const READ_TO_FILL: u32 = 3;
pub const MARK_TO_REMOVE: u32 = 4;
pub const LOAD_TO_STORE: u32 = 5;
pub const ANNOUNCED_TO_WRITTEN: u32 = 6;
pub const WRITTEN_TO_CHECKED: u32 = 7;
pub const LOOK_TO_REQUEST: u32 = 8;
pub const DRAIN_TO_READ: u32 = 9;
pub const NO_SLOT_TO_MARK: u32 = 10;
pub const SAVED_TO_NAMED: u32 = 11;
pub const DEFINITION_TO_SHARE: u32 = 12;

/// The maximum wait in a window, which ends the wait if a test fails before it releases the session.
const LONGEST: &str = "60s";

/// Returns whether the library has windows, which need the cargo feature `pauses`.
pub fn paused(cluster: &Cluster) -> bool {
    let mut session = cluster.connect("postgres");
    session.holds("SELECT current_setting('pgcache.pause_window', true) IS NOT NULL")
}

/// Makes this session wait in this window when it reaches the window. Returns the pid of its backend.
pub fn stay_in(cluster: &Cluster, session: &mut Client, window: u32) -> i64 {
    session.run(&format!(
        "SET pgcache.pause = '{LONGEST}'; SET pgcache.pause_window = {window}"
    ));
    cluster.hold_windows(true);
    session.number("SELECT pg_backend_pid()")
}

/// Waits until a backend waits in its window.
pub fn until_inside(watch: &mut Client, backend: i64, what: &str) {
    wait_until(what, || is_inside(watch, backend));
}

/// Returns whether a backend waits in its window.
pub fn is_inside(watch: &mut Client, backend: i64) -> bool {
    watch.holds(&format!(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'Extension'"
    ))
}

/// Ends the stay of a process in its window with an error of this level, `ERROR` or `FATAL`.
pub fn fail_inside(cluster: &Cluster, level: &str) {
    // In one step, so that the process does not read a part.
    let (file, next) = ("pgcache.hold", "pgcache.hold.next");
    let [file, next] = [file, next].map(|name| cluster.data().join(name));
    std::fs::write(&next, level).expect("the folder is ours");
    std::fs::rename(&next, &file).expect("the folder is ours");
    wait_until("it has failed", || !file.exists());
}

/// Releases, when it is dropped, the sessions that wait in a window or for a standby. Without this release, a test with
/// a failed assertion would first wait for the threads of these sessions.
pub struct LetGo<'c>(pub &'c Cluster);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(std::fs::remove_file(self.0.data().join("pgcache.hold")));
            let waiting =
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            drop(
                self.0
                    .try_connect("postgres", "postgres")
                    .map(|mut session| session.try_lines(waiting)),
            );
        }
    }
}
