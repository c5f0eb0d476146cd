//! A ring of records in shared memory. Any process may append records; a reader reads every record after its own
//! position.
//!
//! No process waits for another, so writers overwrite old records. The rule: the ring reports every loss. A reader that
//! is too slow receives [`Next::Lost`], and never a mixture of two records. For this, a writer first moves the head
//! past its record, so that readers notice the overwriting. It writes the first word of the record last.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, fence};

use crate::seqlock::pack;

/// The number of words before a record's bytes: its position and length, two words of the caller, and a checksum.
const HEAD: usize = 4;
/// The number of bits of a record's first word that hold the record's number of words. The other bits hold its position
/// plus one, so that a word of zero is never a record's first word.
const LENGTH_BITS: u32 = 20;

/// A ring of `WORDS` words of eight bytes, a power of two. A zeroed ring is empty.
#[repr(C, align(64))]
pub struct Ring<const WORDS: usize> {
    /// The position after the last record, in words since the start.
    head: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Returns the number of words that a record with these parts takes.
pub fn words(parts: &[&[u8]]) -> usize {
    let bytes = parts.iter().map(|part| part.len().div_ceil(8));
    HEAD + bytes.sum::<usize>()
}

/// Returns the checksum after one more word. The checksum detects a record that two writers wrote at the same time,
/// because one of them was late by a whole turn of the ring.
fn checksum(sum: u64, word: u64) -> u64 {
    (sum ^ word)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(29)
}

impl<const WORDS: usize> Ring<WORDS> {
    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[position as usize % WORDS]
    }

    /// Appends a record: two words of the caller, and the parts, each padded to whole words. It takes at most half of
    /// the ring, and at most a million words.
    #[inline]
    pub fn append(&self, about: [u64; 2], parts: &[&[u8]]) {
        let count = words(parts) as u64;
        let at = self.head.fetch_add(count, SeqCst);
        // A reader that sees one of the words below also sees the moved head.
        fence(Release);
        let mut sum = at;
        for (place, word) in (at + 1..).zip(about) {
            sum = checksum(sum, word);
            self.word(place).store(word, Relaxed);
        }
        let bytes = parts.iter().copied().flat_map(pack);
        for (place, word) in (at + HEAD as u64..).zip(bytes) {
            sum = checksum(sum, word);
            self.word(place).store(word, Relaxed);
        }
        self.word(at + 3).store(sum, Relaxed);
        self.word(at)
            .store((at + 1) << LENGTH_BITS | count, Release);
    }

    /// Returns the position after the last record, which may be unfinished.
    pub fn head(&self) -> u64 {
        self.head.load(SeqCst)
    }
}

/// The result of reading the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No records are left to read.
    End,
    /// The writer of the next record has not finished it.
    Unfinished,
    /// Writers overwrote records before the reader read them. The reader continues after a call of [`Reader::pass`].
    Lost,
    /// A record, with the two words that the caller of [`Ring::append`] passed.
    Record([u64; 2]),
}

/// A reader of the records that are appended after its creation.
pub struct Reader<'r, const WORDS: usize> {
    ring: &'r Ring<WORDS>,
    tail: u64,
}

impl<'r, const WORDS: usize> Reader<'r, WORDS> {
    /// Begins at the present end of the ring.
    pub fn begin(ring: &'r Ring<WORDS>) -> Reader<'r, WORDS> {
        Reader {
            ring,
            tail: ring.head(),
        }
    }

    /// Returns the position of the next record.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Returns whether unread records exist, finished or unfinished.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.ring.head() != self.tail
    }

    /// Returns whether [`Reader::next`] would find a record or a loss.
    pub fn is_ready(&self) -> bool {
        self.is_behind() && (self.count().is_some() || self.is_lapped())
    }

    /// Skips all present records, including unfinished ones.
    pub fn pass(&mut self) {
        self.tail = self.ring.head();
    }

    /// Returns the next record's number of words; None if its writer has not finished it.
    fn count(&self) -> Option<u64> {
        let first = self.ring.word(self.tail).load(Acquire);
        let position = (self.tail + 1) & (u64::MAX >> LENGTH_BITS);
        (first >> LENGTH_BITS == position).then_some(first & ((1 << LENGTH_BITS) - 1))
    }

    /// Reads the next record, and passes its parts to `take` word by word. The words are valid only if the result is a
    /// record.
    pub fn next(&mut self, mut take: impl FnMut([u8; 8])) -> Next {
        if !self.is_behind() {
            return Next::End;
        }
        let Some(count) = self.count() else {
            return match self.is_lapped() {
                true => Next::Lost,
                false => Next::Unfinished,
            };
        };
        let (ring, at) = (self.ring, self.tail);
        let about = [1, 2].map(|place| ring.word(at + place).load(Relaxed));
        let written = ring.word(at + 3).load(Relaxed);
        let mut sum = checksum(checksum(at, about[0]), about[1]);
        for place in at + HEAD as u64..at + count {
            let word = ring.word(place).load(Relaxed);
            sum = checksum(sum, word);
            take(word.to_le_bytes());
        }
        fence(Acquire);
        if self.is_lapped() || sum != written {
            return Next::Lost;
        }
        self.tail += count;
        Next::Record(about)
    }

    /// Returns whether a writer may have begun to overwrite the next record.
    fn is_lapped(&self) -> bool {
        self.ring.head() - self.tail > WORDS as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = if cfg!(miri) { 60 } else { 200_000 };

    fn ring<const WORDS: usize>() -> Box<Ring<WORDS>> {
        Box::new(Ring {
            head: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        })
    }

    fn read<const WORDS: usize>(reader: &mut Reader<'_, WORDS>) -> (Next, Vec<u8>) {
        let mut bytes = Vec::new();
        let next = reader.next(|word| bytes.extend_from_slice(&word));
        (next, bytes)
    }

    /// Returns the text of a writer's record: its length and bytes follow from its number.
    fn text(writer: u64, number: u64) -> Vec<u8> {
        vec![(writer * 31 + number) as u8; (number * 7 % 60) as usize]
    }

    #[test]
    fn a_reader_finds_all_records_appended_since_it_began() {
        let ring = ring::<64>();
        ring.append([1, 1], &[b"before"]);
        let mut reader = Reader::begin(&ring);
        assert_eq!(read(&mut reader).0, Next::End);
        assert!(!reader.is_ready());
        ring.append([2, 3], &[b"channel", b"", b"eight by"]);
        ring.append([4, u64::MAX], &[]);
        assert!(reader.is_ready());
        let (next, bytes) = read(&mut reader);
        assert_eq!(next, Next::Record([2, 3]));
        assert_eq!(bytes, b"channel\0eight by");
        assert_eq!(read(&mut reader), (Next::Record([4, u64::MAX]), vec![]));
        assert_eq!(read(&mut reader).0, Next::End);
    }

    #[test]
    fn a_reader_that_was_too_slow_notices() {
        let ring = ring::<64>();
        let mut reader = Reader::begin(&ring);
        for number in 0..17 {
            ring.append([number, 0], &[]);
        }
        assert!(reader.is_ready());
        assert_eq!(read(&mut reader).0, Next::Lost);
        reader.pass();
        assert_eq!(read(&mut reader).0, Next::End);
        ring.append([9, 9], &[]);
        assert_eq!(read(&mut reader).0, Next::Record([9, 9]));
    }

    #[test]
    fn a_record_is_unfinished_until_its_first_word_is_written() {
        let ring = ring::<64>();
        let mut reader = Reader::begin(&ring);
        let at = ring.head.fetch_add(HEAD as u64, SeqCst); // a writer that stops after it has moved the head
        ring.append([5, 6], &[]);
        assert!(reader.is_behind() && !reader.is_ready());
        assert_eq!(read(&mut reader).0, Next::Unfinished);
        let sum = checksum(checksum(at, 7), 8);
        for (place, word) in [7, 8, sum].into_iter().enumerate() {
            ring.words[1 + place].store(word, Relaxed);
        }
        ring.words[0].store((at + 1) << LENGTH_BITS | HEAD as u64, Release);
        assert_eq!(read(&mut reader).0, Next::Record([7, 8]));
        assert_eq!(read(&mut reader).0, Next::Record([5, 6]));
    }

    #[test]
    fn a_record_of_two_writers_is_lost() {
        let ring = ring::<64>();
        let mut reader = Reader::begin(&ring);
        ring.append([1, 2], &[b"text"]);
        ring.words[HEAD].store(0, Relaxed); // by a writer that was late by a whole turn
        assert_eq!(read(&mut reader).0, Next::Lost);
    }

    #[test]
    fn readers_beside_writers_find_whole_records_in_the_order_of_each_writer() {
        let ring = ring::<512>();
        let (writing, finders) = (AtomicU64::new(2), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut reader = Reader::begin(&ring);
                let (writing, finders) = (&writing, &finders);
                scope.spawn(move || {
                    let mut last = [0; 3];
                    loop {
                        let is_over = writing.load(SeqCst) == 0;
                        match read(&mut reader) {
                            // A writer that was a turn late may leave a record unfinished forever.
                            (Next::End | Next::Unfinished, _) if is_over => break,
                            (Next::End | Next::Unfinished, _) => std::thread::yield_now(),
                            (Next::Lost, _) => reader.pass(),
                            (Next::Record([writer, number]), bytes) => {
                                let text = text(writer, number);
                                assert_eq!(bytes.get(..text.len()), Some(&text[..]));
                                assert_eq!(bytes.len(), text.len().next_multiple_of(8));
                                assert!(number > last[writer as usize]);
                                if last == [0; 3] {
                                    finders.fetch_add(1, SeqCst);
                                }
                                last[writer as usize] = number;
                            }
                        }
                    }
                });
            }
            for writer in 1..=2 {
                let (ring, writing, finders) = (&ring, &writing, &finders);
                scope.spawn(move || {
                    let mut number = 0;
                    // Writers that outrun both readers continue slowly until each has found a record.
                    while number < RECORDS || finders.load(SeqCst) < 2 {
                        number += 1;
                        ring.append([writer, number], &[&text(writer, number)]);
                        if number > RECORDS {
                            std::thread::sleep(std::time::Duration::from_millis(1));
                        } else if number % 16 == 0 {
                            std::thread::yield_now();
                        }
                    }
                    writing.fetch_sub(1, SeqCst);
                });
            }
        });
    }
}
