//! Prints a step of a counterexample for a reader: the backend, its action, and shared memory after the action.

use super::model::{Model, first_value};
use super::moves::{Event, NOBODY};
use super::state::{KEYS, State};

pub fn title(m: &Model) -> String {
    let values: Vec<_> = (0..KEYS)
        .map(|key| format!("k{key}={}", first_value(key)))
        .collect();
    format!("{}, first rows {}", m.name, values.join(" "))
}

pub fn line(m: &Model, event: Event, after: &State) -> String {
    let name = if event.actor == NOBODY {
        "--"
    } else {
        m.scripts[event.actor].name
    };
    let key = event.key.map_or(String::new(), |key| format!(" k{key}"));
    let step = format!("{name} {}{key}", event.verb);
    format!("{step:<52} {}", shared(m, after))
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
