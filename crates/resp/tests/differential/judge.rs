//! Compares the replies of the two servers: byte by byte, except for commands whose replies may differ.

use super::generate::UNORDERED;
use super::redis::{Value, value};

/// Returns whether two replies are equal. Lists of keys are equal as sets, and times are equal within ten seconds.
pub fn same(name: &str, ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let (Some((ours, _)), Some((theirs, _))) = (value(ours), value(theirs)) else {
        return false;
    };
    match (name, ours, theirs) {
        ("keys", Value::List(ours), Value::List(theirs)) => sorted(ours) == sorted(theirs),
        ("scan", Value::List(ours), Value::List(theirs)) => match (&ours[..], &theirs[..]) {
            ([end, Value::List(ours)], [other, Value::List(theirs)]) => {
                end == other && sorted(ours.clone()) == sorted(theirs.clone())
            }
            _ => false,
        },
        (_, Value::Line(ours), Value::Line(theirs)) if UNORDERED.contains(&name) => {
            let amount = |line: &[u8]| {
                std::str::from_utf8(line.strip_prefix(b":")?)
                    .ok()?
                    .parse::<i64>()
                    .ok()
            };
            let milliseconds = if name.starts_with('p') { 1 } else { 1000 };
            match (amount(&ours), amount(&theirs)) {
                (Some(ours), Some(theirs)) if ours > 0 && theirs > 0 => {
                    (ours - theirs).abs() * milliseconds <= 10_000
                }
                _ => false,
            }
        }
        _ => false,
    }
}

pub fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort();
    values
}
