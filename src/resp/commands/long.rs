//! GET of memory caches and of copies of a table's entries; a long value is copied in pieces, others have their
//! turns in between, and nothing of it is sent before it is whole.
//!
//! Guards that a reply is the value of one moment: that of its last piece. An entry that was written, removed,
//! evicted, cleared or has expired since the first one is asked for anew, by what its client may do then.

use pgcache_resp::Writer;
use pgcache_store::{Piece, Reading};

use super::call::Call;
use super::strings;
use crate::cache::entries::buffers::{Buffers, shown};
use crate::cache::memory::raw::Found;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::shmem::slot::Counter;
use crate::resp::commands::error::{CommandError, Done};

/// So many times a value is begun that others write meanwhile; then it is copied at once.
const TRIES: u8 = 3;
/// Bytes of a reply beside the value.
const AROUND: usize = 32;

/// How far a GET has come.
#[derive(Debug)]
pub enum Position {
    /// Nothing was read, or nothing that counts, after so many tries.
    Begins(u8),
    Reads(Long),
}

/// A long value of which a part was copied.
#[derive(Debug)]
pub struct Long {
    reading: Reading,
    /// Where it is sent from, when it is whole.
    reply: Writer,
    tries: u8,
}

impl Position {
    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        match self {
            Position::Begins(_) => 0,
            Position::Reads(long) => long.reply.held(),
        }
    }
}

/// The next piece of a GET; what is left of it.
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

/// Copies at once what would be begun too often, and what the client is cut off for.
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
    // Its memory is asked for here: not under the lock.
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
