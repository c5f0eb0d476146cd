//! Rows of a cache's table as a statement returns them.

use crate::cache::model::deadline::Deadline;
use crate::cache::model::entry::Entry;
use crate::pg::memory;
use crate::pg::session::clock::INFINITY;
use crate::pg::spi::plan::Output;
use crate::pg::value::datum::Text;

/// The columns `value, expires_at` of a row.
pub fn entry(output: &Output, row: usize) -> Entry {
    Entry {
        value: output.stored(row, 0),
        deadline: deadline(output, row),
    }
}

/// The column `expires_at`, second of the row.
pub fn deadline(output: &Output, row: usize) -> Deadline {
    output
        .moment(row, 1)
        .filter(|&deadline| deadline != INFINITY)
}

/// The first row's `value, expires_at`.
pub fn first(output: &Output) -> Option<Entry> {
    (output.rows() > 0).then(|| entry(output, 0))
}

/// The rows `value, expires_at, key`.
pub fn entries(output: &Output) -> Vec<(Text, Entry)> {
    memory::collect((0..output.rows()).filter_map(|row| {
        let key = output.text(row, 2)?;
        Some((key, entry(output, row)))
    }))
}
