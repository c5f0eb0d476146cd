//! Reads entries from the rows that a statement over a cache's table returns.

use crate::cache::model::deadline::Deadline;
use crate::cache::model::entry::Entry;
use crate::pg::memory;
use crate::pg::session::clock::INFINITY;
use crate::pg::spi::output::Output;
use crate::pg::value::datum::Text;

/// Reads the columns `value, expires_at` of a row.
pub fn entry(output: &Output, row: usize) -> Entry {
    Entry {
        value: output.stored(row, 0),
        deadline: deadline(output, row),
    }
}

/// Reads the column `expires_at`, the second column of a row. Infinity means no deadline.
pub fn deadline(output: &Output, row: usize) -> Deadline {
    output
        .moment(row, 1)
        .filter(|&deadline| deadline != INFINITY)
}

/// Reads `value, expires_at` of the first row. Returns None if no row was returned.
pub fn first(output: &Output) -> Option<Entry> {
    (output.rows() > 0).then(|| entry(output, 0))
}

/// Reads the rows `value, expires_at, key`.
pub fn entries(output: &Output) -> Vec<(Text, Entry)> {
    memory::collect((0..output.rows()).filter_map(|row| {
        let key = output.text(row, 2)?;
        Some((key, entry(output, row)))
    }))
}
