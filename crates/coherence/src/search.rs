//! Visits every state that a model can reach.
//!
//! `explore` goes deep first and keeps a fingerprint of 64 bits for each state: a hundred million states fit in
//! two gigabytes, and the chance that two of them share a fingerprint is one in three thousand.
//! `counterexample` goes wide first and keeps the way back, so that what it finds is as short as can be.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::model::Model;
use crate::moves::Event;
use crate::state::{State, Violation};
use crate::step::successors;
use crate::trace::Trace;

/// Mixes eight bytes at a time by a folded multiplication.
#[derive(Default)]
struct Fingerprint {
    hash: u64,
    word: u64,
    bits: u32,
}

impl Fingerprint {
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.hash ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
        self.hash = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.word |= u64::from(byte) << self.bits;
        self.bits += 8;
        if self.bits == 64 {
            let word = std::mem::take(&mut self.word);
            self.mix(word);
            self.bits = 0;
        }
    }

    fn write_isize(&mut self, discriminant: isize) {
        self.write_u8(discriminant as u8);
    }

    fn write_usize(&mut self, length: usize) {
        self.write_u8(length as u8);
    }

    fn finish(&self) -> u64 {
        let mut last = Fingerprint {
            hash: self.hash,
            word: 0,
            bits: 0,
        };
        last.mix(self.word);
        last.mix(u64::from(self.bits));
        last.hash
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Fingerprints need no second hashing.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are u64");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Seen = HashSet<u64, BuildHasherDefault<AsIs>>;

#[derive(Clone, Debug)]
pub struct Report {
    pub states: usize,
    pub steps: usize,
    /// False: the limit of states ended the search.
    pub complete: bool,
    pub violation: Option<Violation>,
}

/// Every reachable state, up to `limit`, or until a promise is broken.
pub fn explore(m: &Model, limit: usize) -> Report {
    let mut seen = Seen::default();
    let first = m.first_state();
    let mut open = vec![first];
    let mut next = Vec::new();
    let mut report = Report {
        states: 1,
        steps: 0,
        complete: true,
        violation: None,
    };
    seen.insert(fingerprint(&first));
    while let Some(state) = open.pop() {
        if seen.len() >= limit {
            report.complete = false;
            break;
        }
        successors(m, &state, &mut next);
        report.steps += next.len();
        report.violation = violation_among(&state, &next);
        if report.violation.is_some() {
            break;
        }
        open.extend(
            next.drain(..)
                .map(|(_, state)| state)
                .filter(|state| seen.insert(fingerprint(state))),
        );
    }
    report.states = seen.len();
    report
}

fn violation_among(from: &State, next: &[(Event, State)]) -> Option<Violation> {
    if next.is_empty() && !from.all_done() {
        return Some(Violation::Stuck);
    }
    next.iter().find_map(|(_, state)| state.broken)
}

/// The way to a state: the state before it, and which of that state's steps led here.
struct Step {
    before: u32,
    choice: u16,
}

/// A shortest run that breaks a promise.
pub fn counterexample(m: &Model) -> Option<Trace> {
    let first = m.first_state();
    let mut seen = Seen::default();
    let mut steps = vec![Step {
        before: 0,
        choice: 0,
    }];
    let mut level = vec![(0_u32, first)];
    let mut next = Vec::new();
    seen.insert(fingerprint(&first));
    while !level.is_empty() {
        let mut below = Vec::new();
        for (id, state) in &level {
            successors(m, state, &mut next);
            if let Some(violation) = violation_among(state, &next) {
                let last = next.iter().position(|(_, state)| state.broken.is_some());
                return Some(replay(m, &steps, *id, last, violation));
            }
            for (choice, (_, state)) in next.iter().enumerate() {
                if seen.insert(fingerprint(state)) {
                    below.push((steps.len() as u32, *state));
                    steps.push(Step {
                        before: *id,
                        choice: choice as u16,
                    });
                }
            }
        }
        level = below;
    }
    None
}

fn replay(m: &Model, steps: &[Step], id: u32, last: Option<usize>, violation: Violation) -> Trace {
    let mut choices = Vec::from_iter(last);
    let mut at = id;
    while at != 0 {
        let step = &steps[at as usize];
        choices.push(step.choice as usize);
        at = step.before;
    }
    let mut trace = Trace::new(m, violation);
    let mut state = m.first_state();
    let mut next = Vec::new();
    for choice in choices.into_iter().rev() {
        successors(m, &state, &mut next);
        let (event, after) = next[choice];
        trace.push(m, event, &after);
        state = after;
    }
    trace
}
