//! A counterexample as a person reads it: who did what, and what shared memory looked like after it.

use std::fmt;

use crate::model::{Model, first_value};
use crate::moves::{Event, NOBODY};
use crate::state::{KEYS, State, Violation};

#[derive(Clone, Debug)]
pub struct Trace {
    pub violation: Violation,
    title: String,
    lines: Vec<String>,
}

impl Trace {
    pub fn new(m: &Model, violation: Violation) -> Self {
        let values: Vec<_> = (0..KEYS)
            .map(|key| format!("k{key}={}", first_value(key)))
            .collect();
        let title = format!("{}: {violation:?}; first rows {}", m.name, values.join(" "));
        Trace {
            violation,
            title,
            lines: Vec::new(),
        }
    }

    pub fn push(&mut self, m: &Model, event: Event, after: &State) {
        let name = if event.actor == NOBODY {
            "--"
        } else {
            m.scripts[event.actor].name
        };
        let key = event.key.map_or(String::new(), |key| format!(" k{key}"));
        let step = format!("{name} {}{key}", event.verb);
        self.lines.push(format!(
            "{:3}  {step:<52} {}",
            self.lines.len() + 1,
            shared(m, after)
        ));
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

fn shared(m: &Model, state: &State) -> String {
    let shared = &state.shared;
    let slot = shared.slot.map_or("no slot".to_string(), |slot| {
        let suspended = if slot.suspended { " suspended" } else { "" };
        format!(
            "g{} e{} p{}{suspended}",
            slot.generation, slot.epoch, slot.pending_writers
        )
    });
    let locked = match (shared.locked.ours, shared.locked.others) {
        (0, 0) => String::new(),
        (ours, others) => format!(" | locks {ours}, of others {others}"),
    };
    let rows: Vec<_> = (0..KEYS)
        .map(|key| format!("{}", state.current(key).1.value))
        .collect();
    let hot: Vec<_> = (0..KEYS).map(|key| entry(m, state, key)).collect();
    let stripe = shared.stripe;
    format!(
        "| stripe v{} marks {:?}, of others {} | slot {slot}{locked} | rows {} | hot {}",
        stripe.ver,
        stripe.marks,
        stripe.others,
        rows.join(" "),
        hot.join(" ")
    )
}

fn entry(m: &Model, state: &State, key: usize) -> String {
    match (state.shared.entries[key], state.valid_now(m, key)) {
        (None, _) => "-".to_string(),
        (Some(entry), Some(_)) => {
            format!("{}(g{} e{})", entry.value, entry.generation, entry.epoch)
        }
        (Some(entry), None) => format!(
            "[{} g{} e{} invalid]",
            entry.value, entry.generation, entry.epoch
        ),
    }
}
