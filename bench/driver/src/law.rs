//! The key law: which number is drawn, and which UUID it becomes.
//!
//! Numbers 0 .. slots-1 are laid out so that every fifth is absent: a uniform draw hits an existing key in
//! 80 of 100 cases, and misses lie between the hits instead of beyond them. The pgbench scripts and
//! `rounds/law.py` follow the same rule; change all three or none.

pub const PREFIX: &[u8; 24] = b"6f1d7a52-3c08-4b9e-a5d4-";
pub const KEY_LEN: usize = 36;
const DIGITS: usize = 12;
const FIRST_NEW: u64 = 200_000_000_000;
const END_NEW: u64 = 1_000_000_000_000;

#[derive(Clone, Copy)]
pub struct Law {
    pub entries: u64,
    /// Added to every number of the layout. pgbench cannot pad with zeros and starts at 100000000000;
    /// redis-benchmark pads and cannot add, so it is 0 there. The key has 36 bytes either way.
    pub offset: u64,
}

impl Law {
    /// Numbers a read draws from: the entries and a quarter more.
    fn slots(self) -> u64 {
        self.entries / 4 * 5
    }

    /// The i-th existing number.
    pub fn existing(self, i: u64) -> u64 {
        self.offset + i / 4 * 5 + i % 4 + 1
    }

    /// Also what the round `set` draws, as redis-benchmark does.
    pub fn read(self, random: &mut Random) -> u64 {
        self.offset + random.below(self.slots())
    }

    fn overwrite(self, random: &mut Random) -> u64 {
        self.existing(random.below(self.entries))
    }

    /// One write in ten overwrites; the others take a number from a space so wide that none comes twice.
    pub fn write(self, random: &mut Random) -> u64 {
        if random.below(10) == 0 {
            self.overwrite(random)
        } else {
            FIRST_NEW + random.below(END_NEW - FIRST_NEW)
        }
    }
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

/// splitmix64: a few nanoseconds a draw.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_a_uuid_of_36_bytes() {
        assert_eq!(&key(42), b"6f1d7a52-3c08-4b9e-a5d4-000000000042");
        assert_eq!(&key(987_654_321_012), b"6f1d7a52-3c08-4b9e-a5d4-987654321012");
    }

    fn exists(number: u64) -> bool {
        number % 5 != 0
    }

    #[test]
    fn existing_numbers_are_all_that_five_does_not_divide() {
        let law = Law { entries: 1000, offset: 0 };
        let listed: Vec<u64> = (0..1000).map(|i| law.existing(i)).collect();
        let wanted: Vec<u64> = (0..law.slots()).filter(|n| exists(*n)).collect();
        assert_eq!(listed, wanted);
    }

    #[test]
    fn four_reads_in_five_hit() {
        let law = Law { entries: 1000, offset: 0 };
        let mut random = Random(1);
        let hits = (0..100_000).filter(|_| exists(law.read(&mut random))).count();
        assert!((79_000..81_000).contains(&hits), "{hits}");
    }

    #[test]
    fn one_write_in_ten_overwrites() {
        let law = Law { entries: 1000, offset: 0 };
        let mut random = Random(1);
        let old = (0..100_000).filter(|_| law.write(&mut random) < law.slots()).count();
        assert!((9_500..10_500).contains(&old), "{old}");
    }
}
