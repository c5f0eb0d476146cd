//! Prints the hit rates that the store, LRU, S3-FIFO and SIEVE reach on a recorded trace.
//!
//! `cargo run --release -p pgcache-store --example replay FILE [MiB ...]`: the file has lines of `key,size,op,ttl,time`
//! (`tests/sim/file.rs`). Without sizes, it uses tiers of 1, 5, 10, 25 and 50 % of the bytes that the trace touches.
//! The first third of the trace is not counted. Prints one line for each size, separated by tabs: bytes, the number of
//! average entries that fit in these bytes, and the hit rates of the store, LRU, S3-FIFO and SIEVE. It skips a size
//! that is too small for a tier.
//!
//! The textbook caches pay 56 bytes for each entry besides its key and value, the size of a header and an index slot in
//! any cache; the store pays for its actual bookkeeping.

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

use std::collections::HashMap;

use pgcache_store::{Layout, Params};
use sim::Cache;
use sim::file::{Request, key_and_value, parse, replay};
use sim::mortal::Mortal;
use sim::policies::{Lru, S3Fifo, Sieve};
use sim::simulated_store::Tier;

/// The bytes of an entry besides key and value, in a cache without a layout.
const OVERHEAD: usize = 56;
const SHARES: [usize; 5] = [1, 5, 10, 25, 50];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        fail("usage: replay FILE [MiB ...]");
    };
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| fail(&format!("{error}")));
    let requests = parse(&text).unwrap_or_else(|error| fail(&error));
    let touched = touched(&requests);
    let mut sizes: Vec<usize> = arguments
        .map(|mib| {
            mib.parse::<f64>()
                .map_or(0, |mib| (mib * 1048576.0) as usize)
        })
        .collect();
    if sizes.is_empty() {
        sizes.extend(SHARES.map(|share| touched.bytes / 100 * share));
    }
    println!("bytes\tentries\tstore\tlru\ts3_fifo\tsieve");
    for size in sizes {
        measure(&requests, size, &touched);
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("{reason}");
    std::process::exit(2);
}

struct Touched {
    bytes: usize,
    keys: usize,
}

fn touched(requests: &[Request]) -> Touched {
    let sizes: HashMap<u64, usize> = requests.iter().map(|line| (line.key, line.size)).collect();
    Touched {
        bytes: sizes.values().map(|size| weight(*size)).sum(),
        keys: sizes.len(),
    }
}

fn weight(size: usize) -> usize {
    key_and_value(size) + OVERHEAD
}

fn measure(requests: &[Request], size: usize, touched: &Touched) {
    let params = Params::new(size, 0);
    if Layout::with(params).is_err() {
        return;
    }
    let warm_up = requests.len() / 3;
    let store = replay(&mut Tier::new(params), requests, warm_up, key_and_value);
    let textbook = |cache: &mut dyn Cache| replay(cache, requests, warm_up, weight);
    let lru = textbook(&mut Mortal::new(Lru::new(size)));
    let s3_fifo = textbook(&mut Mortal::new(S3Fifo::textbook(size)));
    let sieve = textbook(&mut Mortal::new(Sieve::new(size)));
    let entries = size as u128 * touched.keys as u128 / touched.bytes.max(1) as u128;
    println!("{size}\t{entries}\t{store:.2}\t{lru:.2}\t{s3_fifo:.2}\t{sieve:.2}");
}
