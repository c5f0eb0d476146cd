//! Applies pg_hba.conf and pg_ident.conf to Redis clients, which are not Postgres sessions.
//!
//! - [`hba_files`]: parses both files with Postgres' own parsers.
//! - [`line`]: the parsed lines as plain data.
//! - [`matching`]: finds the line that applies to a login.
//! - [`regex`], [`network`]: the regular expressions, addresses and names that `matching` compares with a line.
//!
//! The layout of Postgres' structures is in `version::hba_layout`, the authentication methods in `resp::auth`, and
//! passwords in `password.rs` beside this folder.
//!
//! A process reads the files when it starts and at SIGHUP, as the postmaster does. If a file has an error, the rules
//! that were read before stay in force. A process that has never read a valid pg_hba.conf admits no client.

mod hba_files;
pub mod line;
pub mod matching;
mod network;
mod regex;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::pg::encoding::printable;
use line::{Line, Mapping};
pub use network::user_name;

/// The address of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddress {
    /// A client of the unix socket, and the system user that runs it.
    Unix { uid: u32 },
    /// A client of the network.
    Tcp(SocketAddr),
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: PeerAddress,
    pub tls: bool,
}

/// The lines of both files.
#[derive(Default)]
pub struct Rules {
    pub lines: Vec<Line>,
    pub mappings: Vec<Mapping>,
}

thread_local! {
    static RULES: RefCell<Option<Rc<Rules>>> = const { RefCell::new(None) };
}

/// Reads both files. A file that has an error keeps its former rules. Runs within a transaction; needs no snapshot.
pub fn reload() {
    let former = rules();
    let lines = match hba_files::hba() {
        Ok(lines) => lines,
        Err(fault) => {
            complain(fault);
            let Some(former) = &former else {
                return;
            };
            former.lines.clone()
        }
    };
    let mappings = match hba_files::ident() {
        Ok(mappings) => mappings,
        Err(fault) => {
            complain(fault);
            former.map_or_else(Vec::new, |former| former.mappings.clone())
        }
    };
    let rules = Rc::new(Rules { lines, mappings });
    let _former = RULES.with(|place| place.replace(Some(rules)));
}

/// Returns the rules that were last read without an error; None if no valid pg_hba.conf was read.
pub fn rules() -> Option<Rc<Rules>> {
    RULES.with(|rules| rules.borrow().clone())
}

fn complain(fault: hba_files::Unusable) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR,
        "could not reload the authentication rules of the Redis protocol",
        "pgcache",
    )
    .set_detail(printable(fault.0))
    .set_hint("Correct the file and reload the configuration.")
    .report(PgLogLevel::LOG);
}
