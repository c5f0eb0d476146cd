//! A parsed request: the command, its row in the table of commands, and its arguments.

use std::ops::Deref;

use super::kinds::{Command, Expiry};
use crate::args::Args;
use crate::table::{Entry, Kind};

/// The maximum COUNT of a short SCAN, which counts as a read.
const SHORT_SCAN: i64 = 1000;

/// A command with its row in the table. The row holds the kind of the command, so no other code needs a list of
/// commands.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    pub command: Command<'a>,
    pub entry: &'static Entry,
    /// All arguments, including the command's name.
    pub args: Args<'a>,
}

impl<'a> Deref for Parsed<'a> {
    type Target = Command<'a>;

    fn deref(&self) -> &Command<'a> {
        &self.command
    }
}

impl Parsed<'_> {
    /// Returns the kind in the command's row, except for a short SCAN and for GETEX without an option, which are reads.
    pub fn kind(&self) -> Kind {
        match &self.command {
            Command::Scan(scan) if scan.count <= SHORT_SCAN => Kind::Read,
            Command::GetExpire {
                expiry: Expiry::Unsaid | Expiry::Keep,
                ..
            } => Kind::Read,
            _ => self.entry.kind,
        }
    }
}
