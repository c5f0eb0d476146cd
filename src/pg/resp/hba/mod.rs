//! pg_hba.conf and pg_ident.conf, for clients that are no sessions of Postgres.
//!
//! - [`reading`]: Postgres' own parsers, into plain data.
//! - [`line`]: what a line is.
//! - [`matching`]: which line is about a log-in.
//! - [`regex`], [`network`]: what it is compared with.
//!
//! Not here: where Postgres' structures have their fields (`version::hba_layout`), what a method asks for (`resp::auth`), and passwords (`password.rs`, beside this).
//!
//! The files are read when a process begins and at SIGHUP, as the postmaster does. One that has a
//! fault changes nothing; where none was read before, nobody comes in.

pub mod line;
pub mod matching;
mod network;
mod reading;
mod regex;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::pg::encoding::printable;
use line::{Line, Mapping};
pub use network::user_name;

/// From where a client comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddress {
    /// By the door's socket, and as which user of this machine.
    Unix { uid: u32 },
    /// By the network.
    Tcp(SocketAddr),
}

/// What a connection shows of its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: PeerAddress,
    pub tls: bool,
}

/// Both files.
#[derive(Default)]
pub struct Rules {
    pub lines: Vec<Line>,
    pub mappings: Vec<Mapping>,
}

thread_local! {
    static RULES: RefCell<Option<Rc<Rules>>> = const { RefCell::new(None) };
}

/// Reads both files. Inside of a transaction, with no snapshot needed.
pub fn reload() {
    let former = rules();
    let lines = match reading::hba() {
        Ok(lines) => lines,
        Err(fault) => {
            complain(fault);
            let Some(former) = &former else {
                return;
            };
            former.lines.clone()
        }
    };
    let mappings = match reading::ident() {
        Ok(mappings) => mappings,
        Err(fault) => {
            complain(fault);
            former.map_or_else(Vec::new, |former| former.mappings.clone())
        }
    };
    let rules = Rc::new(Rules { lines, mappings });
    let _former = RULES.with(|place| place.replace(Some(rules)));
}

/// What was read last; None if it never could be.
pub fn rules() -> Option<Rc<Rules>> {
    RULES.with(|rules| rules.borrow().clone())
}

fn complain(fault: reading::Unusable) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR,
        "could not reload the authentication rules of the Redis protocol",
        "pgcache",
    )
    .set_detail(printable(fault.0))
    .set_hint("Correct the file and reload the configuration.")
    .report(PgLogLevel::LOG);
}
