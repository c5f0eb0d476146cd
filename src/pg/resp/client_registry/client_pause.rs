//! The current CLIENT PAUSE, in shared memory, so that all network processes hold back commands.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::pg::resp::client_registry::registry_layout::ClientRegistry;
use crate::pg::session::clock::{self, Timestamp};

/// A pause: which commands it holds back, and until when.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    pub until: Timestamp,
    /// Whether the pause holds back all commands; otherwise it holds back only commands that write.
    pub all: bool,
}

impl ClientRegistry {
    /// Returns the current pause, if any.
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

    /// Begins a pause. A pause that is already in effect is joined with it: the later end counts, and all commands are
    /// held back if either pause holds them all back.
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

    pub fn end_pause(&self) {
        self.head.pause.store(0, Release);
        self.wake_networks();
    }
}
