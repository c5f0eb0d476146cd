//! Commands that are held back for a time (CLIENT PAUSE), by all network processes alike.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::pg::resp::client_registry::layout::ClientRegistry;
use crate::pg::session::clock::{self, Timestamp};

/// Which commands are held back, and until when.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    pub until: Timestamp,
    /// All; else those that write.
    pub all: bool,
}

impl ClientRegistry {
    /// Which commands are held back; None: none.
    #[inline]
    pub fn pause(&self) -> Option<Pause> {
        match self.head.pause.load(Relaxed) {
            0 => None,
            word => Some(Pause {
                until: word >> 1,
                all: word & 1 == 1,
            }),
        }
    }

    /// Holds commands back: until the later moment, and all of them, if one is held back already.
    pub fn begin_pause(&self, until: Timestamp, all: bool) {
        let now = clock::now();
        let joined = |word: i64| {
            let former = word >> 1;
            let goes_on = word != 0 && former > now;
            let until = if goes_on { former.max(until) } else { until };
            let all = all || goes_on && word & 1 == 1;
            Some(until << 1 | i64::from(all))
        };
        self.head.pause.fetch_update(AcqRel, Relaxed, joined).ok();
        self.wake_networks();
    }

    /// Holds nothing back any more.
    pub fn end_pause(&self) {
        self.head.pause.store(0, Release);
        self.wake_networks();
    }
}
