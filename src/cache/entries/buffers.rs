//! The two buffers of a process: one for the value that a command has found, and one for the value that it builds. Only
//! one command at a time uses the buffers.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use super::failed::Failed;
use crate::cache::memory::raw::{self, EntryMeta};

/// The number of bytes that a buffer keeps between two commands. A process has one pair of buffers, not a pair for
/// each connection. A buffer that has held a long value is shrunk.
const KEPT: usize = raw::LONG;
/// The capacity of an unused buffer: a value up to this size is copied with a single lookup.
const SHORT: usize = 8 << 10;

/// The buffers of one command: for the value that it has found, and for the value that it builds.
#[derive(Default)]
pub struct Buffers {
    pub found: Vec<u8>,
    pub made: Vec<u8>,
}

thread_local! {
    /// Never dropped, so that no destructor runs at the end of the process.
    static BUFFERS: ManuallyDrop<RefCell<Buffers>> = const {
        ManuallyDrop::new(RefCell::new(Buffers { found: Vec::new(), made: Vec::new() }))
    };
}

/// Runs a command with the buffers of this process.
pub fn with_buffers<R, E: From<Failed>>(
    run: impl FnOnce(&mut Buffers) -> Result<R, E>,
) -> Result<R, E> {
    BUFFERS.with(|buffers| {
        let Ok(mut buffers) = buffers.try_borrow_mut() else {
            // A trigger on a table can call functions inside a command on that table, so the buffers may be in use.
            return run(&mut Buffers::default());
        };
        raw::grow(&mut buffers.found, SHORT).map_err(Failed::from)?;
        let done = run(&mut buffers);
        shrink(&mut buffers.found);
        shrink(&mut buffers.made);
        done
    })
}

fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT {
        buffer.truncate(SHORT);
        buffer.shrink_to(SHORT);
    }
}

/// Returns the value in a buffer that [`super::store::Store::get`] has filled; it is empty for a negative entry.
pub fn value<'b>(seen: &EntryMeta, found: &'b [u8]) -> &'b [u8] {
    found.get(..seen.length).unwrap_or_default()
}

/// Returns the reply of GET. Returns None, which is sent as nil, for a missing or a negative entry.
pub fn shown<'b>(seen: &Option<EntryMeta>, found: &'b [u8]) -> Option<&'b [u8]> {
    seen.as_ref()
        .filter(|seen| !seen.negative)
        .map(|seen| value(seen, found))
}
