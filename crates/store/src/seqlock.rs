//! A sequence lock: a version word for data in shared memory that readers read without a lock. The version is odd
//! during a write, and has a new value after it. A reader that sees the version change during its read reads again.
//!
//! The data are atomics, read and written relaxed, so that a read during a write is defined. Fences order them with the
//! version, as in Boehm, "Can seqlocks get along with programming language memory models?" (2012). No reader waits for
//! a writer: a writer that dies leaves the version odd, and the data are unreadable until the next write.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

/// The number of attempts of a reader before it gives up.
const TRIES: usize = 1000;

/// The version of some data. Zeroed memory means that the data were never written.
#[repr(transparent)]
#[derive(Default)]
pub struct Seqlock(AtomicU64);

/// A write in progress. Dropping this value ends the write.
pub struct Writing<'v> {
    version: &'v AtomicU64,
    odd: u64,
}

impl Seqlock {
    /// Begins a write. The caller is the only writer, so an odd version comes from a writer that died, and this write
    /// takes the version over.
    pub fn write(&self) -> Writing<'_> {
        let odd = self.0.load(Relaxed) | 1;
        self.0.store(odd, Relaxed);
        fence(Release);
        Writing {
            version: &self.0,
            odd,
        }
    }

    /// Begins a write if other writers may exist. Returns None if another write is in progress.
    pub fn try_write(&self) -> Option<Writing<'_>> {
        let version = self.0.load(Relaxed);
        let odd = version | 1;
        let is_free = version != odd;
        let taken = is_free
            && self
                .0
                .compare_exchange(version, odd, Acquire, Relaxed)
                .is_ok();
        if !taken {
            return None;
        }
        fence(Release);
        Some(Writing {
            version: &self.0,
            odd,
        })
    }

    /// Returns the result of `look` if no write overlapped with it. Returns None if writes overlapped with every
    /// attempt, or if the data were never written.
    pub fn read<R>(&self, look: impl Fn() -> R) -> Option<R> {
        for _ in 0..TRIES {
            let version = self.0.load(Acquire);
            if version == 0 {
                return None;
            }
            if version & 1 == 0 {
                let seen = look();
                fence(Acquire);
                if self.0.load(Relaxed) == version {
                    return Some(seen);
                }
            }
            core::hint::spin_loop();
        }
        None
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.version.store(self.odd + 1, Release);
    }
}

/// Packs text into words of eight bytes, the last word padded with zeros.
pub fn pack(text: &[u8]) -> impl Iterator<Item = u64> {
    text.chunks(8).map(|piece| {
        let mut eight = [0; 8];
        eight[..piece.len()].copy_from_slice(piece);
        u64::from_le_bytes(eight)
    })
}

/// Stores text in these words, truncated if it is longer, and followed by zeros.
pub fn store_text(words: &[AtomicU64], text: &[u8]) {
    let packed = pack(text).chain(core::iter::repeat(0));
    for (word, packed) in words.iter().zip(packed) {
        word.store(packed, Relaxed);
    }
}

/// Returns the text that was packed into these words, without the zeros at its end.
pub fn unpack(words: &[u64]) -> impl Iterator<Item = u8> {
    let last = words.iter().rposition(|&word| word != 0);
    let length = last.map_or(0, |last| {
        let zeros = words[last].leading_zeros() as usize / 8;
        last * 8 + 8 - zeros
    });
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.take(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };

    #[test]
    fn a_reader_sees_the_words_of_one_write() {
        let (lock, words) = (Seqlock::default(), [AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let _writing = lock.write();
                    words[0].store(round, Relaxed);
                    words[1].store(round, Relaxed);
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let look = || words.each_ref().map(|word| word.load(Relaxed));
                    if let Some([one, other]) = lock.read(look) {
                        assert_eq!(one, other);
                    }
                }
            });
        });
        assert_eq!(lock.read(|| words[1].load(Relaxed)), Some(ROUNDS));
    }

    #[test]
    fn of_several_writers_one_writes() {
        let lock = Seqlock::default();
        let first = lock.try_write().unwrap();
        assert!(lock.try_write().is_none());
        assert!(lock.read(|| ()).is_none());
        drop(first);
        assert!(lock.try_write().is_some());
    }

    #[test]
    fn a_writer_takes_over_the_version_of_a_dead_one() {
        let lock = Seqlock::default();
        std::mem::forget(lock.write());
        assert!(lock.read(|| ()).is_none());
        drop(lock.write());
        assert_eq!(lock.read(|| 1), Some(1));
    }

    #[test]
    fn data_that_were_never_written_are_not_read() {
        assert!(Seqlock::default().read(|| ()).is_none());
    }

    #[test]
    fn text_comes_back_from_words_and_is_cut() {
        let words: [AtomicU64; 2] = Default::default();
        let stored = |text: &[u8]| {
            store_text(&words, text);
            unpack(&words.each_ref().map(|word| word.load(Relaxed))).collect::<Vec<_>>()
        };
        assert_eq!(stored(b"twelve bytes"), b"twelve bytes");
        assert_eq!(stored(b"short"), b"short");
        assert_eq!(stored(b"more than sixteen"), b"more than sixtee");
        assert_eq!(stored(b""), b"");
    }
}
