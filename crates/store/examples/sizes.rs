//! The hit rate at many sizes of value: does any size waste memory, or spoil who is evicted?
//!
//! `cargo run --release -p pgcache-store --example sizes [MiB [from:to:step ...]]`: a tier of so
//! many MiB (64), and sizes in bytes; without them from 64 bytes to 1 MiB. Data four times the
//! tier, 20 % of the keys get 80 % of the gets, a miss sets; one pass of four gets a key to warm
//! up, one counts. One line a size, in tabs: bytes, hit rate, share of the tier that entries fill,
//! runs moved per thousand sets.
//!
//! `sizes MiB from/to ...`: a tier filled by two passes over values of one size is taken over by
//! keys of another size (or the same). One line a pair: the hit rate of the third pass, and that in
//! a tier that was empty.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for the terminal, run by hand"
)]

#[path = "../tests/sim/mod.rs"]
mod sim;

use pgcache_store::Params;
use sim::tier::{KEY_BYTES, Tier};
use sim::{hit_rate, traces};

/// Ranges of sizes, each finer than the holes that its sizes could leave.
const SWEEP: [&str; 7] = [
    "64:1024:64",
    "1152:3072:128",
    "3200:12288:64",
    "12416:40960:256",
    "41984:131072:2048",
    "139264:524288:16384",
    "525312:1048576:32704",
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mib = arguments.next().map_or(Some(64), |text| text.parse().ok());
    let Some(mib) = mib else {
        eprintln!("usage: sizes [MiB [from:to:step ...]]");
        std::process::exit(2);
    };
    let mut ranges: Vec<String> = arguments.collect();
    if ranges.is_empty() {
        ranges.extend(SWEEP.map(String::from));
    }
    let pairs: Vec<_> = ranges.iter().filter_map(|text| pair(text)).collect();
    if !pairs.is_empty() {
        println!("from\tto\thit_rate\tin_an_empty_tier");
        for (old, new) in pairs {
            take_over(mib << 20, old, new);
        }
        return;
    }
    println!("bytes\thit_rate\tfilled\tmoved_per_1000_sets");
    for value in ranges.iter().flat_map(|text| range(text)) {
        measure(mib << 20, value);
    }
}

fn pair(text: &str) -> Option<(usize, usize)> {
    let (old, new) = text.split_once('/')?;
    Some((old.parse().ok()?, new.parse().ok()?))
}

fn take_over(size: usize, old: usize, new: usize) {
    let mut tier = Tier::new(Params::new(size, 0));
    sim::passes(&mut tier, size, old, 7..9, 1 << 32);
    let taken = sim::passes(&mut tier, size, new, 1..4, 0);
    let empty = sim::passes(&mut Tier::new(Params::new(size, 0)), size, new, 1..4, 0);
    println!("{old}\t{new}\t{taken:.2}\t{empty:.2}");
}

fn range(text: &str) -> impl Iterator<Item = usize> + use<> {
    let mut parts = text.split(':').map(|part| part.parse().unwrap_or(64));
    let from = parts.next().unwrap_or(64);
    let to = parts.next().unwrap_or(from);
    (from..=to).step_by(parts.next().unwrap_or(64).max(1))
}

fn measure(size: usize, value: usize) {
    let mut tier = Tier::new(Params::new(size, 0));
    let pass = 4 * (4 * size / value);
    let trace = traces::hot_and_cold(1, pass as u64 / 4, 2 * pass);
    let rate = hit_rate(&mut tier, pass, trace, |_| KEY_BYTES + value);
    let (usage, stats) = (tier.region.usage(), tier.region.stats());
    println!(
        "{value}\t{rate:.2}\t{:.2}\t{:.1}",
        100.0 * usage.entries as f64 / usage.region as f64,
        1000.0 * stats.moved as f64 / stats.sets as f64,
    );
}
