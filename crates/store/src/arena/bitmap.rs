//! Finds runs of free granules in a page's bitmap: a word of 64 bits whose ones are free granules.
//!
//! The functions work on the word alone and access no memory. Each takes a few shifts for any word, and never loops
//! over granules.

/// Returns a bit mask of the positions where `n` free granules begin.
pub fn starts_of_runs(free: u64, n: u32) -> u64 {
    let mut starts = free;
    let mut have = 1;
    while have < n {
        let step = have.min(n - have);
        starts &= starts >> step;
        have += step;
    }
    starts
}

/// Returns the length of the longest run of ones.
pub fn longest_run(free: u64) -> u32 {
    let mut powers = [free; 7];
    for power in 1..7 {
        powers[power] = powers[power - 1] & powers[power - 1] >> (1 << (power - 1));
    }
    let mut starts = u64::MAX;
    let mut length = 0u32;
    for power in (0..7).rev() {
        let longer = starts & powers[power].checked_shr(length).unwrap_or(0);
        if longer != 0 {
            starts = longer;
            length += 1 << power;
        }
    }
    length
}

/// Returns a word with `n` ones from bit `at` on.
pub fn mask(at: u32, n: u32) -> u64 {
    if n >= 64 {
        u64::MAX
    } else {
        ((1 << n) - 1) << (at & 63)
    }
}

/// Returns the position for a run of `n` granules: a hole of exactly this size if one exists, otherwise the first hole
/// that fits. Returns None if no hole fits.
pub fn best_hole(free: u64, n: u32) -> Option<u32> {
    let fitting = starts_of_runs(free, n);
    let hole_starts = free & !(free << 1);
    let longer = if n < 64 {
        starts_of_runs(free, n + 1)
    } else {
        0
    };
    let exact = fitting & hole_starts & !longer;
    let choice = if exact != 0 { exact } else { fitting };
    (choice != 0).then(|| choice.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_and_fits_agree_with_counting() {
        let mut word = 0x1234_5678_9ABC_DEF1u64;
        for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let free = match round % 4 {
                0 => word,
                1 => word & word >> 7,
                2 => word | word << 9 | word >> 20,
                _ => mask(round % 64, 1 + round % 64),
            };
            let mut best = 0;
            let mut run = 0;
            for bit in 0..64 {
                run = if free >> bit & 1 == 1 { run + 1 } else { 0 };
                best = best.max(run);
            }
            assert_eq!(longest_run(free), best, "{free:064b}");
            assert_eq!(starts_of_runs(free, best.max(1)) != 0, best > 0);
            assert!(best == 64 || starts_of_runs(free, best + 1) == 0);
        }
        assert_eq!((longest_run(0), longest_run(u64::MAX)), (0, 64));
    }

    #[test]
    fn a_hole_of_just_the_right_size_is_preferred() {
        let free = 0b0111_0000_1111_1100;
        assert_eq!(best_hole(free, 3), Some(12));
        assert_eq!(best_hole(free, 6), Some(2));
        assert_eq!(best_hole(free, 2), Some(2));
        assert_eq!(best_hole(free, 7), None);
    }
}
