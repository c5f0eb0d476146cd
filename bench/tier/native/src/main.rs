//! What get and set of the tier cost and how they scale, without SQL: processes over one mapping, a lock a
//! partition, as in a server.
//!
//! Usage: tier-scaling SECONDS_PER_LINE. One line of JSON a measurement.

mod draws;
mod lock;
mod processes;
mod shared;
mod work;

use std::time::Duration;

use draws::{Draws, Law};
use work::{Tier, Work};

pub const KEYS: u32 = 1_000_000;
const PROCESSES: [usize; 4] = [1, 2, 4, 8];
/// A million entries of 16-byte keys and 37-byte values take about 150 MiB.
const SIZES: [(&str, usize); 2] = [("all", 256 << 20), ("a quarter", 40 << 20)];

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    for (fits, size) in SIZES {
        let tier = Tier::of(size);
        (0..KEYS).for_each(|number| tier.set(number));
        for law in [Law::Uniform, Law::Zipf] {
            let draws = Draws::by(law, KEYS);
            for processes in PROCESSES {
                for work in Work::ALL {
                    let found = processes::measure(&tier, &draws, work, processes, time);
                    let (name, law, partitions) = (work.name(), law.name(), tier.partitions());
                    println!(
                        "{{\"fits\": \"{fits}\", \"law\": \"{law}\", \"work\": \"{name}\", \
                         \"processes\": {processes}, \"partitions\": {partitions}, \"per_second\": {:.0}, \
                         \"ns\": {:.1}, \"waits\": {:.6}}}",
                        found.per_second, found.nanoseconds, found.waits
                    );
                }
            }
        }
    }
}
