//! Evaluates regular expressions of pg_hba.conf and pg_ident.conf.
//!
//! The expressions must match as they do for sessions. Postgres compiles them in the postmaster, which has no database
//! and treats each byte as a character, and evaluates them before a session has its database. An executor has a
//! database, in whose encoding the same expression could have another meaning. So this module also treats each byte as
//! a character. It compiles an expression only when a login needs it.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use pgrx::pg_sys::Oid;

use crate::pg::memory::unguarded::guarded;

/// Room for Postgres' `regex_t`, which has less than 80 bytes in versions 15 to 19.
#[repr(C, align(16))]
struct Compiled([u8; 256]);

/// `regmatch_t`; both fields are -1 for a group that is not part of the match.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    start: i64,
    end: i64,
}

unsafe extern "C-unwind" {
    fn pg_regcomp(
        regex: *mut Compiled,
        pattern: *const u32,
        length: usize,
        flags: c_int,
        collation: Oid,
    ) -> c_int;
    fn pg_regexec(
        regex: *mut Compiled,
        text: *const u32,
        length: usize,
        start: usize,
        details: *mut c_void,
        places: usize,
        place: *mut Place,
        flags: c_int,
    ) -> c_int;
    fn pg_regfree(regex: *mut c_void);
}

/// From regex/regex.h: the syntax of Postgres' regular expression operators.
const REG_ADVANCED: c_int = 3;
const REG_NOMATCH: c_int = 1;
/// From catalog/pg_collation.dat.
const C_COLLATION: u32 = 950;

/// A match, with the position of the first parenthesised group if the group is part of the match.
pub struct Match {
    pub group: Option<Range<usize>>,
}

/// The error that the expression cannot be compiled, or that the search failed.
pub struct Failed;

/// Searches a text for the expression; returns None if the text does not match.
pub fn search(pattern: &[u8], text: &[u8]) -> Result<Option<Match>, Failed> {
    let (pattern, text) = (characters(pattern), characters(text));
    let mut regex = Compiled([0; 256]);
    let mut places = [Place { start: -1, end: -1 }; 2];
    let (regex, place) = (&raw mut regex, places.as_mut_ptr());
    // SAFETY: inside `guarded` an error jumps over nothing that must be dropped. The expression has room for the
    // structure that Postgres fills, and is freed if it was compiled; texts and places live through the calls, which
    // receive their lengths.
    let outcome = unsafe {
        guarded(|| {
            let collation = Oid::from_u32(C_COLLATION);
            let (start, length) = (pattern.as_ptr(), pattern.len());
            if pg_regcomp(regex, start, length, REG_ADVANCED, collation) != 0 {
                return None;
            }
            let details = std::ptr::null_mut();
            let found = pg_regexec(regex, text.as_ptr(), text.len(), 0, details, 2, place, 0);
            pg_regfree(regex.cast());
            Some(found)
        })
    };
    match outcome {
        Some(0) => Ok(Some(Match {
            group: range(places[1]),
        })),
        Some(REG_NOMATCH) => Ok(None),
        _ => Err(Failed),
    }
}

fn characters(text: &[u8]) -> Vec<u32> {
    text.iter().copied().map(u32::from).collect()
}

fn range(place: Place) -> Option<Range<usize>> {
    Some(usize::try_from(place.start).ok()?..usize::try_from(place.end).ok()?)
}
