//! The distribution of keys: draws numbers, and converts them to UUIDs.
//!
//! Of the numbers 0 .. slots-1 every fifth is absent. So 80 of 100 uniform draws hit an existing key, and the absent
//! keys are spread among the existing keys. `bench/key_distribution.py` follows the same rule and must change together
//! with this file.

use crate::random::Random;
use crate::zipf::Zipf;

pub const PREFIX: &[u8; 24] = b"6f1d7a52-3c08-4b9e-a5d4-";
pub const KEY_LEN: usize = 36;
const DIGITS: usize = 12;
const FIRST_NEW: u64 = 200_000_000_000;
const END_NEW: u64 = 1_000_000_000_000;
/// A prime far from a power of two, so that neighbouring ranks are far apart.
const SCATTER: u64 = 2_654_435_761;

#[derive(Clone, Copy)]
pub struct KeyDistribution {
    pub entries: u64,
    /// The offset that is added to every drawn number. pgbench cannot pad with zeros, so its numbers begin at
    /// 100000000000. redis-benchmark pads but cannot add, so its offset is 0. The key has 36 bytes in both cases.
    pub offset: u64,
    pub keys: Keys,
}

#[derive(Clone, Copy)]
pub enum Keys {
    Uniform,
    /// Draws existing keys by rank, scattered over the numbers. Draws absent keys uniformly. They are 20 of 100 draws,
    /// as with uniform keys.
    Zipf(Zipf),
    /// Draws 80 of 100 keys from the first fifth of the entries. No key is absent once the load has set it.
    Hot,
}

impl KeyDistribution {
    /// Returns how many numbers a read draws from: a quarter more than the entries.
    fn slots(self) -> u64 {
        self.entries / 4 * 5
    }

    /// Returns the i-th existing number.
    pub fn existing(self, i: u64) -> u64 {
        self.offset + i / 4 * 5 + i % 4 + 1
    }

    fn absent(self, i: u64) -> u64 {
        self.offset + i * 5
    }

    /// Draws the number of the key to read. The workload `set` draws its keys in the same way, as redis-benchmark does.
    pub fn read(self, random: &mut Random) -> u64 {
        match self.keys {
            Keys::Uniform => self.offset + random.below(self.slots()),
            Keys::Zipf(_) if random.below(5) == 0 => self.absent(random.below(self.entries / 4)),
            Keys::Zipf(_) | Keys::Hot => self.overwrite(random),
        }
    }

    fn overwrite(self, random: &mut Random) -> u64 {
        let place = match self.keys {
            Keys::Uniform => random.below(self.entries),
            Keys::Zipf(zipf) => scattered(zipf.draw(random), self.entries),
            Keys::Hot if random.below(5) == 0 => self.hot() + random.below(self.entries - self.hot()),
            Keys::Hot => random.below(self.hot()),
        };
        self.existing(place)
    }

    /// Draws the number of the key to write. One write in ten overwrites; the other nine draw from so many numbers that
    /// no number comes twice.
    pub fn write(self, random: &mut Random) -> u64 {
        if random.below(10) == 0 {
            self.overwrite(random)
        } else {
            FIRST_NEW + random.below(END_NEW - FIRST_NEW)
        }
    }

    fn hot(self) -> u64 {
        self.entries / 5
    }

    /// Returns whether the number belongs to the fifth of the entries that `Keys::Hot` draws often.
    pub fn is_hot(self, number: u64) -> bool {
        number < self.existing(self.hot())
    }
}

/// Returns the entry of a rank. The mapping is a permutation unless [`SCATTER`] divides the number of entries.
pub fn scattered(rank: u64, entries: u64) -> u64 {
    ((u128::from(rank) * u128::from(SCATTER)) % u128::from(entries)) as u64
}

pub fn key(number: u64) -> [u8; KEY_LEN] {
    let mut out = [b'0'; KEY_LEN];
    out[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut rest = number;
    for place in 0..DIGITS {
        out[KEY_LEN - 1 - place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out
}

/// Returns letters and digits that compression does not shorten. They are the same in every run.
pub fn value(size: usize) -> Vec<u8> {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = Random(37);
    (0..size).map(|_| LETTERS[random.below(62) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: KeyDistribution = KeyDistribution { entries: 1000, offset: 0, keys: Keys::Uniform };

    #[test]
    fn key_is_a_uuid_of_36_bytes() {
        assert_eq!(&key(42), b"6f1d7a52-3c08-4b9e-a5d4-000000000042");
        assert_eq!(&key(987_654_321_012), b"6f1d7a52-3c08-4b9e-a5d4-987654321012");
    }

    fn exists(number: u64) -> bool {
        !number.is_multiple_of(5)
    }

    #[test]
    fn existing_numbers_are_all_that_five_does_not_divide() {
        let listed: Vec<u64> = (0..1000).map(|i| KEYS.existing(i)).collect();
        let wanted: Vec<u64> = (0..KEYS.slots()).filter(|n| exists(*n)).collect();
        assert_eq!(listed, wanted);
    }

    #[test]
    fn four_reads_in_five_hit_under_any_skew() {
        for keys in [Keys::Uniform, Keys::Zipf(Zipf::new(1000))] {
            let keys = KeyDistribution { keys, ..KEYS };
            let mut random = Random(1);
            let hits = (0..100_000).filter(|_| exists(keys.read(&mut random))).count();
            assert!((79_000..81_000).contains(&hits), "{hits}");
        }
    }

    #[test]
    fn one_write_in_ten_overwrites() {
        let mut random = Random(1);
        let old = (0..100_000).filter(|_| KEYS.write(&mut random) < KEYS.slots()).count();
        assert!((9_500..10_500).contains(&old), "{old}");
    }

    #[test]
    fn four_draws_in_five_are_hot() {
        let keys = KeyDistribution { keys: Keys::Hot, ..KEYS };
        let mut random = Random(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| keys.read(&mut random)).collect();
        let hot = drawn.iter().filter(|number| keys.is_hot(**number)).count();
        assert!((79_000..81_000).contains(&hot), "{hot}");
        assert!(drawn.iter().all(|number| exists(*number)));
    }

    #[test]
    fn scattering_loses_no_rank() {
        let mut places: Vec<u64> = (0..1000).map(|rank| scattered(rank, 1000)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..1000).collect::<Vec<u64>>());
    }

    #[test]
    fn a_value_has_its_length_and_does_not_repeat() {
        let value = value(1000);
        assert_eq!(value.len(), 1000);
        assert_ne!(value[..100], value[100..200]);
    }
}
