//! Tests that values of any size reach the same hit rate, and that a full tier soon serves a new working set.
//!
//! The policy alone must choose the entry to evict, whatever hole a value leaves beside it, and however few entries fit
//! in a partition. These tests cover only some sizes; `examples/hit_rates.rs` covers the whole range.
//!
//! The load is the memory-limit workload: the data are four times the tier, 20 % of the keys get 80 % of the gets, and
//! a miss sets. A pass has four gets for each key.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

mod sim;

use pgcache_store::Params;
use sim::passes;
use sim::simulated_store::{KEY_BYTES, Tier};

const SMALL: usize = 8 << 20;
const SIZE: usize = 16 << 20;
const LARGE: usize = 32 << 20;

fn tier(size: usize) -> Tier {
    Tier::new(Params::new(size, 0))
}

/// Returns the hit rate after one pass that warms up the tier.
fn rate(size: usize, value: usize) -> f64 {
    passes(&mut tier(size), size, value, 1..3, 0)
}

/// Returns the sizes whose hit rate is below this percentage, with the rate.
fn short_of(
    percent: f64,
    size: usize,
    values: impl IntoIterator<Item = usize>,
) -> Vec<(usize, f64)> {
    values
        .into_iter()
        .map(|value| (value, rate(size, value)))
        .filter(|(_, rate)| *rate < percent)
        .collect()
}

#[test]
fn a_hole_beside_the_last_piece_does_not_cost_hits() {
    let named = [3_300, 3_600, 7_400, 11_500, 27_900, 31_800, 32_000, 36_000];
    assert_eq!(short_of(76.0, SIZE, named), []);
    // Each step adds one granule, over a little more than a page.
    assert_eq!(short_of(76.0, SMALL, (7_000..8_300).step_by(64)), []);
}

/// Entries of ten, twelve and fifteen granules leave four granules of a page unused.
#[test]
fn a_hole_that_a_short_value_leaves_is_filled_with_the_next_in_pieces() {
    let sizes = [(576, 75.5), (704, 76.5), (896, 77.0), (1_792, 78.5)];
    for (value, least) in sizes {
        assert_eq!(short_of(least, SMALL, [value]), []);
    }
}

/// Returns the bytes of a full tier for each entry, besides its key of 36 bytes and its value: index, header, holes,
/// rounding and all other bookkeeping. The index is laid out for entries of the size `expected`.
fn beside(value: usize, expected: Option<usize>) -> f64 {
    const KEY: usize = 36;
    let stock = Params::new(LARGE, 0);
    let params = expected.map_or(stock, |size| stock.expecting(size));
    let mut full = Tier::with_keys(params, KEY);
    let room = LARGE / (KEY + value);
    (0..room as u64 * 2).for_each(|key| {
        full.set(key, value);
    });
    LARGE as f64 / full.region.stats().entries as f64 - (KEY + value) as f64
}

#[test]
fn an_index_of_the_right_size_costs_few_bytes_an_entry() {
    let most = [
        (8, 100.0),
        (264, 130.0),
        (400, 97.0),
        (3_900, 216.0),
        (37, 72.0),
        (100, 76.0),
        (512, 114.0),
        (1_000, 108.0),
        (4_000, 116.0),
        (8_000, 252.0),
        (12_000, 388.0),
    ];
    let found = most.map(|(value, most)| {
        let (stock, own) = (beside(value, None), beside(value, Some(36 + value)));
        println!("{value:6}: {stock:.1} bytes beside key and value, {own:.1} with the right index");
        (value, own, most)
    });
    assert!(found.iter().all(|(_, own, most)| own <= most), "{found:?}");
}

/// Tests that a tier reports the average size of its entries to within a granule, so that an index laid out for the
/// reported size fits.
#[test]
fn the_content_of_a_tier_shows_the_size_of_its_entries() {
    for value in [8, 100, 1_000, 4_000] {
        let mut full = tier(SMALL);
        (0..SMALL as u64 / value as u64).for_each(|key| {
            full.set(key, value);
        });
        let stats = full.region.stats();
        let reported = Params::entry_size(stats.bytes, stats.entries).unwrap();
        let exact = KEY_BYTES + value;
        assert!(
            reported.abs_diff(exact) <= 64,
            "{reported} instead of {exact}"
        );
    }
}

#[test]
fn values_of_which_a_partition_holds_few_are_chosen_among_all() {
    let sizes = [60_000, 120_000, 250_000, 350_000];
    assert_eq!(short_of(76.0, LARGE, sizes), []);
    assert_eq!(short_of(74.0, 2 * LARGE, [525_312, 700_000, 1 << 20]), []);
}

/// Returns how many points the hit rate of a new working set's third pass is below the rate that the same working set
/// reaches in an empty tier.
fn short_after_two_passes(size: usize, old: usize, new: usize) -> f64 {
    let fresh = passes(&mut tier(size), size, new, 1..4, 0);
    let mut full = tier(size);
    passes(&mut full, size, old, 7..9, 1 << 32);
    fresh - passes(&mut full, size, new, 1..4, 0)
}

#[test]
fn a_new_working_set_has_taken_a_full_tier_over_after_two_passes() {
    let sizes = [
        (SIZE, 31_800, 31_800),
        (SIZE, 2_000, 60_000),
        (SIZE, 60_000, 2_500),
        (SMALL, 300, 5_000),
    ];
    for (size, old, new) in sizes {
        let short = short_after_two_passes(size, old, new);
        assert!(short <= 1.0, "{old} to {new}: {short:.2} points short");
    }
}

/// Both sizes are cut from the same pages, but the holes of one size do not fit the other: 300 bytes leave six
/// granules, and 512 bytes need nine. To reach the rate of an empty tier, the store would have to move runs and split
/// entries.
#[test]
fn a_new_size_that_fits_no_hole_of_the_old_takes_over_within_two_points() {
    for (old, new) in [(300, 512), (704, 896)] {
        let short = short_after_two_passes(SMALL, old, new);
        assert!(short <= 2.0, "{old} to {new}: {short:.2} points short");
    }
}
