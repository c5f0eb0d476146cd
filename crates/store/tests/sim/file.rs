//! Reads traces from CSV files (key, size, op, ttl and time), and replays them on a cache.
//!
//! Quoted fields are not supported. Keys are any text without a comma.

use std::collections::HashMap;

use super::Cache;
use super::simulated_store::KEY_BYTES;

/// The operation of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A read, which stores the entry on a miss.
    Get,
    Set,
    Delete,
}

/// One line of a trace. Times are in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub key: u64,
    /// The length of the value in bytes.
    pub size: usize,
    pub op: Op,
    pub ttl: Option<i64>,
    pub now: i64,
}

const SECOND: f64 = 1e6;

/// Reads lines of `key[,size[,op[,ttl[,time]]]]`, with ttl and time in seconds. An empty size means 100, an empty op
/// `get`, and an empty ttl none. Without times, each thousand lines take a second. Skips a first line with the names of
/// the columns.
pub fn parse(text: &str) -> Result<Vec<Request>, String> {
    let mut numbers = HashMap::new();
    let mut requests = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || number == 0 && line.starts_with("key") {
            continue;
        }
        let request = read_line(line, requests.len(), &mut numbers);
        requests.push(request.ok_or(format!("line {}: {line}", number + 1))?);
    }
    Ok(requests)
}

fn read_line(line: &str, before: usize, numbers: &mut HashMap<String, u64>) -> Option<Request> {
    let mut fields = line.split(',').map(str::trim);
    let mut next = || fields.next().filter(|field| !field.is_empty());
    let name = next()?;
    let size = next().map_or(Some(100), |text| text.parse().ok())?;
    let op = match next().unwrap_or("get") {
        "get" => Op::Get,
        "set" => Op::Set,
        "delete" => Op::Delete,
        _ => return None,
    };
    let seconds = |text: Option<&str>| match text {
        None => Some(None),
        Some(text) => Some(Some((text.parse::<f64>().ok()? * SECOND) as i64)),
    };
    let ttl = seconds(next())?;
    let now = seconds(next())?.unwrap_or(before as i64 * 1_000);
    let count = numbers.len() as u64;
    let key = *numbers.entry(name.to_owned()).or_insert(count);
    Some(Request {
        key,
        size,
        op,
        ttl,
        now,
    })
}

/// Returns the hit rate of the gets in percent, after `warm_up` requests that are not counted. `weight` returns the
/// cost of a value of this many bytes in this cache.
pub fn replay(
    cache: &mut dyn Cache,
    requests: &[Request],
    warm_up: usize,
    weight: impl Fn(usize) -> usize,
) -> f64 {
    let (mut hits, mut gets) = (0u64, 0u64);
    for (turn, request) in requests.iter().enumerate() {
        let deadline = request.ttl.map_or(i64::MAX, |ttl| request.now + ttl);
        cache.at(request.now, deadline);
        match request.op {
            Op::Delete => cache.remove(request.key),
            Op::Set => cache.store(request.key, weight(request.size)),
            Op::Get => {
                let hit = cache.request(request.key, weight(request.size));
                if turn >= warm_up {
                    gets += 1;
                    hits += u64::from(hit);
                }
            }
        }
    }
    100.0 * hits as f64 / gets.max(1) as f64
}

/// The weight of an entry in the store: its key and value.
pub fn key_and_value(size: usize) -> usize {
    KEY_BYTES + size
}
