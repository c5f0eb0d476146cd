//! Visits every state that a model can reach.
//!
//! `explore` searches depth-first and keeps a fingerprint of 64 bits for each state. A hundred million states fit in
//! two gigabytes, and the chance that two of them share a fingerprint is one in three thousand. `counterexample`
//! searches breadth-first and keeps the path to each state, so that the run that it finds is as short as possible.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A model: its first state, and the steps that can follow a state.
pub trait Machine {
    type State: Copy + Eq + Hash;
    /// A step, for the trace.
    type Event: Copy;
    type Violation: Copy + fmt::Debug;
    /// The violation of a state in which no step is possible although not all actors have ended.
    const STUCK: Self::Violation;

    fn first(&self) -> Self::State;
    /// Replaces the content of `out` with all possible next steps. If all actors have ended, no step is possible.
    fn successors(&self, from: &Self::State, out: &mut Vec<(Self::Event, Self::State)>);
    fn judge(&self, state: &Self::State) -> Option<Self::Violation>;
    fn all_done(&self, state: &Self::State) -> bool;
    /// Names the configuration, at the head of a trace.
    fn title(&self) -> String;
    /// Describes a step and the state after it, in a line of a trace.
    fn line(&self, event: Self::Event, after: &Self::State) -> String;
}

/// A hasher that mixes eight bytes at a time with a folded multiplication. Every crate that calls `explore` compiles
/// this code again, so all of it is inline: a call for each byte would double the search time.
#[derive(Default)]
struct Fingerprint {
    hash: u64,
    word: u64,
    bits: u32,
}

impl Fingerprint {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.hash ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
        self.hash = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Fingerprint {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.word |= u64::from(byte) << self.bits;
        self.bits += 8;
        if self.bits == 64 {
            let word = std::mem::take(&mut self.word);
            self.mix(word);
            self.bits = 0;
        }
    }

    #[inline]
    fn write_isize(&mut self, discriminant: isize) {
        self.write_u8(discriminant as u8);
    }

    #[inline]
    fn write_usize(&mut self, length: usize) {
        self.write_u8(length as u8);
    }

    #[inline]
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

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A hasher for fingerprints, which returns the fingerprint itself, because it needs no second hashing.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    #[inline]
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are u64");
    }

    #[inline]
    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

type Seen = HashSet<u64, BuildHasherDefault<AsIs>>;

/// The result of a search: the numbers of visited states and steps, and the violation that ended it.
#[derive(Clone, Debug)]
pub struct Report<V> {
    pub states: usize,
    pub steps: usize,
    /// Whether the search visited every state; false if it ended at the limit.
    pub complete: bool,
    pub violation: Option<V>,
}

/// Visits every reachable state, until `limit` states are visited or a promise is broken.
pub fn explore<M: Machine>(m: &M, limit: usize) -> Report<M::Violation> {
    let first = m.first();
    let mut seen = Seen::default();
    seen.insert(fingerprint(&first));
    let (mut open, mut next) = (vec![first], Vec::new());
    let mut report = Report {
        states: 1,
        steps: 0,
        complete: true,
        violation: m.judge(&first),
    };
    while report.violation.is_none()
        && let Some(state) = open.pop()
    {
        if seen.len() >= limit {
            report.complete = false;
            break;
        }
        m.successors(&state, &mut next);
        report.steps += next.len();
        report.violation = keep_new(m, &state, &mut seen, &mut next);
        open.extend(next.drain(..).map(|(_, state)| state));
    }
    report.states = seen.len();
    report
}

/// Removes the successors of a state that the search has already seen, and checks the remaining successors. Returns a
/// violation if a successor has one, or if the state has no successor although not all actors have ended.
fn keep_new<M: Machine>(
    m: &M,
    from: &M::State,
    seen: &mut Seen,
    next: &mut Vec<(M::Event, M::State)>,
) -> Option<M::Violation> {
    if next.is_empty() && !m.all_done(from) {
        return Some(M::STUCK);
    }
    next.retain(|(_, state)| seen.insert(fingerprint(state)));
    next.iter().find_map(|(_, state)| m.judge(state))
}

/// A run that breaks a promise.
#[derive(Clone, Debug)]
pub struct Run<V> {
    pub violation: V,
    title: String,
    lines: Vec<String>,
}

impl<V> Run<V> {
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl<V: fmt::Debug> fmt::Display for Run<V> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}: {:?}", self.title, self.violation)?;
        let mut lines = self.lines.iter().enumerate();
        lines.try_for_each(|(at, line)| writeln!(f, "{:3}  {line}", at + 1))
    }
}

/// The last step of a path: the index of the previous step in the list of steps, and the fingerprint of the state that
/// the step reaches.
struct Step {
    before: u32,
    reached: u64,
}

/// Returns a shortest run that breaks a promise; None if no run does.
pub fn counterexample<M: Machine>(m: &M) -> Option<Run<M::Violation>> {
    let first = m.first();
    let mut steps = vec![Step {
        before: 0,
        reached: fingerprint(&first),
    }];
    if let Some(violation) = m.judge(&first) {
        return Some(replay(m, &steps, 0, violation));
    }
    let mut seen = Seen::from_iter([fingerprint(&first)]);
    let (mut level, mut next) = (vec![(0_u32, first)], Vec::new());
    while !level.is_empty() {
        let mut below = Vec::new();
        for (before, state) in level {
            m.successors(&state, &mut next);
            let broken = keep_new(m, &state, &mut seen, &mut next);
            for (_, state) in next.drain(..) {
                let (at, reached) = (steps.len() as u32, fingerprint(&state));
                steps.push(Step { before, reached });
                if broken.is_some() && m.judge(&state).is_some() {
                    return broken.map(|violation| replay(m, &steps, at, violation));
                }
                below.push((at, state));
            }
            if let Some(violation) = broken {
                return Some(replay(m, &steps, before, violation));
            }
        }
        level = below;
    }
    None
}

fn replay<M: Machine>(
    m: &M,
    steps: &[Step],
    last: u32,
    violation: M::Violation,
) -> Run<M::Violation> {
    let mut way = Vec::new();
    let mut at = last;
    while at != 0 {
        let step = &steps[at as usize];
        way.push(step.reached);
        at = step.before;
    }
    let (mut state, mut next, mut lines) = (m.first(), Vec::new(), Vec::new());
    for reached in way.into_iter().rev() {
        m.successors(&state, &mut next);
        let step = next.iter().find(|(_, after)| fingerprint(after) == reached);
        if let Some((event, after)) = step {
            lines.push(m.line(*event, after));
            state = *after;
        }
    }
    Run {
        violation,
        title: m.title(),
        lines,
    }
}
