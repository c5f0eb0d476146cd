//! Runs GET on memory caches and on copies in the tier. Copies a long value in pieces, between which other clients are
//! served, and sends nothing before the value is complete.
//!
//! The reply must be the value at one moment, the moment of its last piece. If the entry is written, removed, evicted
//! or cleared, or expires, after the first piece, the command starts again with the client's current privileges.

use pgcache_resp::Writer;
use pgcache_store::{Piece, Reading};

use crate::cache::entries::buffers::{Buffers, shown};
use crate::cache::memory::raw::Found;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::shmem::slot::Counter;
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::entry_access::Call;
use crate::resp::commands::strings;

/// The number of attempts to copy a value in pieces. After them, a value that writers keep changing is copied in one
/// piece.
const TRIES: u8 = 3;
/// The number of bytes in a reply in addition to the value.
const AROUND: usize = 32;

/// The progress of a GET.
#[derive(Debug)]
pub enum Position {
    /// No piece of the current value is copied. Holds the number of attempts that failed because the value changed.
    Begins(u8),
    Reads(Long),
}

/// A long value of which some pieces are copied.
#[derive(Debug)]
pub struct Long {
    reading: Reading,
    /// The reply, which is sent once it is complete.
    reply: Writer,
    tries: u8,
}

impl Position {
    /// Returns the bytes of memory that the partial reply holds.
    pub fn held(&self) -> usize {
        match self {
            Position::Begins(_) => 0,
            Position::Reads(long) => long.reply.held(),
        }
    }
}

/// Copies the next piece of a GET. Returns the remaining work, or None if the command is answered.
#[inline]
pub fn get<'a>(
    call: &Call,
    key: &[u8],
    progress: Position,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, Option<Position>> {
    let tries = match progress {
        Position::Begins(tries) => tries,
        Position::Reads(long) => return read_on(call, key, long, out),
    };
    let Some(entries) = call.to_read(Privileges::READ)? else {
        out.null();
        return Ok(None);
    };
    match entries.get_or_begin(&entries.key(key), &mut buffers.found)? {
        Found::Whole(seen) => {
            let seen = call.counted(entries, seen)?;
            out.bulk_or_null(shown(&seen, &buffers.found));
            Ok(None)
        }
        Found::Long(reading) => begin(call, key, reading, tries, buffers, out),
    }
}

/// Begins to copy a value in pieces. Copies it in one piece after [`TRIES`] attempts. Also copies a value in one piece
/// if it exceeds the output limit, because such a reply disconnects the client in any case.
fn begin<'a>(
    call: &Call,
    key: &[u8],
    reading: Reading,
    tries: u8,
    buffers: &mut Buffers,
    out: &mut Writer,
) -> Done<'a, Option<Position>> {
    let limit = reading.length() + AROUND;
    if tries >= TRIES || limit > out.room() {
        return strings::get(call, key, buffers, out).map(|()| None);
    }
    let mut reply = Writer::new(out.protocol(), limit);
    reply.begin_bulk(reading.length());
    if reply.overflowed() {
        return Err(CommandError::OutOfMemory);
    }
    Ok(Some(Position::Reads(Long {
        reading,
        reply,
        tries,
    })))
}

fn read_on<'a>(
    call: &Call,
    key: &[u8],
    mut long: Long,
    out: &mut Writer,
) -> Done<'a, Option<Position>> {
    let anew = Ok(Some(Position::Begins(long.tries + 1)));
    let Some(entries) = call.to_read(Privileges::READ)? else {
        return anew;
    };
    // Allocates the memory here, because no memory may be allocated under the lock.
    let into = long.reply.piece(long.reading.next());
    match entries.read_on(&entries.key(key), &mut long.reading, into) {
        Piece::Copied => Ok(Some(Position::Reads(long))),
        Piece::Changed => anew,
        Piece::Last(_) => {
            entries.tally(Counter::HotHits, 1);
            long.reply.end_bulk();
            out.adopt(long.reply.take());
            Ok(None)
        }
    }
}
