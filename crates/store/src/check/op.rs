//! An operation of the model test and the fuzz target, and the keys and lengths that operations refer to.
//!
//! Any bytes decode to a valid operation, so that the fuzzer wastes no input. This file is not part of a release build.

use std::vec;
use std::vec::Vec;

/// One operation. `run` folds the operation's numbers into useful ranges, so every number is valid.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Set {
        key: u16,
        size: u32,
        ttl: u8,
    },
    Get {
        key: u16,
    },
    Remove {
        key: u16,
    },
    Touch {
        key: u16,
        ttl: u8,
    },
    /// Compares the value in place, then stores another, as cas does.
    Swap {
        key: u16,
        size: u32,
    },
    Mark {
        key: u16,
    },
    /// Marks the key, and keeps the entry's memory.
    MarkToRenew {
        key: u16,
    },
    Renew {
        key: u16,
    },
    Advance {
        by: u8,
    },
    Expire {
        partition: u8,
        slots: u16,
    },
    ClearCache {
        cache: u8,
    },
    /// Reserves pages in a grant that stays alive; `Release` returns them.
    Reserve {
        pages: u8,
    },
    Release,
    Reclaim {
        partition: u8,
        pages: u8,
    },
    Vacate {
        partition: u8,
    },
    /// Empties one page after another, as far as holes allow.
    Compact {
        partition: u8,
    },
    /// Gives a cache another rank.
    Rank {
        cache: u8,
        rank: u8,
    },
    Check,
}

impl Op {
    /// Decodes an operation from eight bytes; the fuzzer's input is a sequence of them.
    pub fn from_bytes(bytes: [u8; 8]) -> Op {
        let key = u16::from_le_bytes([bytes[1], bytes[2]]);
        let size = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], 0]);
        let (a, b) = (bytes[6], bytes[7]);
        match bytes[0] % 32 {
            0..=9 => Op::Set { key, size, ttl: a },
            10..=15 => Op::Get { key },
            16 | 17 => Op::Remove { key },
            18 => Op::Touch { key, ttl: a },
            19 | 20 => Op::Swap { key, size },
            21 => Op::Mark { key },
            22 => Op::Renew { key },
            23 => Op::Advance { by: a },
            24 => Op::Expire {
                partition: a,
                slots: key,
            },
            25 => Op::ClearCache { cache: a },
            26 => Op::Reserve { pages: a },
            27 => Op::Release,
            28 => Op::Reclaim {
                partition: a,
                pages: b,
            },
            29 => Op::Vacate { partition: a },
            30 if a % 2 == 1 => Op::Compact { partition: b },
            30 => Op::MarkToRenew { key },
            31 if a % 4 == 3 => Op::Rank {
                cache: a / 4,
                rank: b,
            },
            _ => Op::Check,
        }
    }
}

/// Returns a key of one of three caches, with 1 to 2048 bytes; most keys are short.
pub(crate) fn name(key: u16) -> (u32, Vec<u8>) {
    let cache = u32::from(key % 3);
    let len = match key % 17 {
        0 => 1 + usize::from(key % 2048),
        1 => 200,
        _ => 12,
    };
    let mut bytes = vec![b'k'; len];
    let number = key.to_le_bytes();
    bytes
        .iter_mut()
        .zip(number)
        .for_each(|(byte, digit)| *byte = digit);
    (cache, bytes)
}

/// Returns the length of a value: mostly short, sometimes about a page, rarely many pages.
pub(crate) fn length(size: u32) -> usize {
    let size = size as usize;
    if cfg!(miri) {
        return size / 16 % [100, 2_500, 9_000][size % 3];
    }
    match size % 16 {
        0..=7 => size / 16 % 200,
        8..=11 => size / 16 % 2_100,
        12..=14 => size / 16 % 9_000,
        _ => size / 16 % 140_000,
    }
}
