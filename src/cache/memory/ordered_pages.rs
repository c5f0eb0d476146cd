//! Pages of a memory cache, for `cache_scan` and `cache_keys`: live entries in key order.
//!
//! The tier has no order, so a page needs a walk over all of it. Consecutive pages of a session share one walk: the
//! session keeps the next keys in a [`Window`], and later pages follow the journals of keys that were inserted after
//! the walk. So a page shows every entry that is live from its call to its return, as if it had made its own walk. Its
//! cost depends only on its length.
//!
//! The first walk keeps few keys, because most callers want one page. Each following walk keeps more.

use std::cell::{Cell, RefCell};

use super::handle::TierHandle;
use super::tier_ops::{CopyOut, Row};
use super::window::{Window, after};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::entry::Page;
use crate::cache::model::key::after_prefix;
use crate::cache::model::pending;
use crate::error::Error;
use crate::pg::memory;
use crate::pg::session;
use crate::pg::value::datum::Text;

/// The number of keys that the first walk keeps.
const FIRST_ROOM: usize = 1024;
/// Each following walk keeps this many times as many keys.
const GROWTH: usize = 16;

thread_local! {
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// The state that the session keeps for the next page.
struct Kept {
    window: Window,
    /// The number of keys that the walk of the window could keep.
    room: usize,
}

/// Passes a page of live entries to `show`.
pub fn scan(cache: &Cache, page: &Page, show: &mut dyn FnMut(CopyOut<Row>)) -> Result<(), Error> {
    let handle = TierHandle::of(cache)?;
    each(cache, &handle, page, &mut |key| {
        let shown = Cell::new(false);
        show(&|| {
            let entry = handle.entry(cache, key);
            shown.set(entry.is_some());
            entry
        });
        shown.get()
    });
    Ok(())
}

/// Passes the keys of a page of live entries to `show`. Does not count as a use of the entries.
pub fn keys(cache: &Cache, page: &Page, show: &mut dyn FnMut(CopyOut<Text>)) -> Result<(), Error> {
    let handle = TierHandle::of(cache)?;
    each(cache, &handle, page, &mut |key| {
        let live = handle.is_live(cache, key);
        if live {
            show(&|| Some(Text::new(key)));
        }
        live
    });
    Ok(())
}

/// Calls `show` for keys that may be on the page, until it has returned true `max_rows` times.
fn each(cache: &Cache, handle: &TierHandle, page: &Page, show: &mut dyn FnMut(&[u8]) -> bool) {
    let end = after_prefix(page.prefix.bytes());
    let mut start = first_key(page);
    let mut left = page.max_rows;
    // Take the window out of the thread-local during the call, so that an error leaves no window behind.
    let mut kept = KEPT.take();
    while left > 0 && end.as_ref().is_none_or(|end| start < *end) {
        let now = reach(handle, kept.take(), &start, end.as_deref(), page.max_rows);
        for key in now.window.from(&start) {
            if left == 0 || end.as_ref().is_some_and(|end| key >= end) {
                break;
            }
            session::check_for_interrupts();
            if !pending::hides(cache.relation, key) {
                left -= usize::from(show(key));
            }
        }
        match now.window.end() {
            Some(window_end) => start = memory::copy(window_end),
            None if left > 0 => return, // no further page exists
            None => {}
        }
        kept = Some(now);
    }
    if left == 0 {
        KEPT.set(kept);
    }
}

/// Returns a window with the keys from `start` on: the kept window if it has them, otherwise the window of a new walk.
fn reach(
    handle: &TierHandle,
    kept: Option<Kept>,
    start: &[u8],
    end: Option<&[u8]>,
    max_rows: usize,
) -> Kept {
    let first = max_rows.max(FIRST_ROOM);
    let room = match kept {
        Some(mut kept) if kept.window.reaches(handle.slot, start) => {
            kept.window.follow(handle.tier);
            if kept.window.reaches(handle.slot, start) {
                return kept;
            }
            first // inserted keys have filled the window, so that it ends too early
        }
        Some(kept) if kept.window.ends_at(handle.slot, start) => kept.room.saturating_mul(GROWTH),
        _ => first,
    };
    Kept {
        window: Window::walk(handle.tier, handle.slot, start, end, room),
        room,
    }
}

/// Returns the lower bound of the first key of a page.
fn first_key(page: &Page) -> Vec<u8> {
    let prefix = page.prefix.bytes();
    match &page.after {
        Some(last) if !last.bytes().is_empty() && last.bytes() >= prefix => after(last.bytes()),
        _ => memory::copy(prefix),
    }
}
