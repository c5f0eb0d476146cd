//! Measures the cost of a get and a set of the hot tier, and how they scale with processes, without SQL. As in a
//! server, processes share one mapping with one lock for each partition. Prints one line of JSON for each measurement.

mod lock;
mod processes;
mod shared;
mod work;

use std::time::Duration;

use crate::key_distribution::scattered;
use crate::random::Random;
use crate::zipf::Zipf;
use crate::{Options, Result};
use work::{Tier, Work};

const KEYS: u64 = 1_000_000;
const PROCESSES: [usize; 4] = [1, 2, 4, 8];
/// A million entries of 16-byte keys and 37-byte values take about 150 MiB.
const SIZES: [(&str, usize); 2] = [("all", 256 << 20), ("a quarter", 40 << 20)];
const DRAWS: usize = 1 << 21;

pub fn main(options: &Options) -> Result<String> {
    let time = Duration::from_secs_f64(options.or("seconds", 1.0)?);
    let mut lines = Vec::new();
    for (fits, size) in SIZES {
        let tier = Tier::of(size)?;
        (0..KEYS as u32).for_each(|number| tier.set(number));
        for keys in ["uniform", "zipf"] {
            let draws = draws(keys);
            for (processes, work) in PROCESSES.iter().flat_map(|count| Work::ALL.map(|work| (*count, work))) {
                let found = processes::measure(&tier, &draws, work, processes, time)?;
                lines.push(format!(
                    "{{\"fits\": \"{fits}\", \"keys\": \"{keys}\", \"work\": \"{}\", \"processes\": {processes}, \
                     \"partitions\": {}, \"per_second\": {:.0}, \"ns\": {:.1}, \"waits\": {:.6}}}",
                    work.name(),
                    tier.partitions(),
                    found.per_second,
                    found.nanoseconds,
                    found.waits
                ));
            }
        }
    }
    Ok(lines.join("\n"))
}

/// Draws keys before the measurement, because drawing a key takes as long as a get. Frequent keys are spread over the
/// key space.
fn draws(keys: &str) -> Vec<u32> {
    let (mut random, zipf) = (Random(1), Zipf::new(KEYS));
    let draw = |_| match keys {
        "zipf" => scattered(zipf.draw(&mut random), KEYS) as u32,
        _ => random.below(KEYS) as u32,
    };
    (0..DRAWS).map(draw).collect()
}

/// Returns the draws in an endless loop, from a start that differs for each process.
fn from(draws: &[u32], process: usize) -> impl Iterator<Item = u32> + '_ {
    draws.iter().copied().cycle().skip(process * DRAWS / 8 % DRAWS)
}
