//! Changes of the shared state that both writers' and fetchers' steps make.

use super::model::{Backend, Clause, Lease, Model, Phase, State};

/// Returns whether this backend is a writer that has removed the committed row and has not ended.
pub fn removes(backend: &Backend) -> bool {
    use Phase::*;
    backend.has_removed
        && matches!(
            backend.at,
            Committing | LateMarking | LateVoiding | Removing | Marking | LookingAgain
        )
}

pub fn unmark(state: &mut State, backend: &mut Backend) {
    if std::mem::take(&mut backend.marked) {
        state.pending[0] -= 1;
    }
    if std::mem::take(&mut backend.announced) {
        state.open -= 1;
    }
}

/// Voids the watches and the lease. A stored lease of backend `own` stays.
pub fn void(m: &Model, state: &mut State, own: Option<u8>) {
    if m.keeps(Clause::MarkVoids) {
        state.lease = match state.lease {
            Lease::Stored(by) if Some(by) != own => Lease::StoredVoid(by),
            Lease::Computing(_) => Lease::Free,
            other => other,
        };
    }
    if m.keeps(Clause::MarkVoidsWatches) {
        for backend in &mut state.backends {
            backend.watches = false;
        }
    }
}

pub fn release(state: &mut State, id: u8) {
    let by = [
        Lease::Computing(id),
        Lease::Stored(id),
        Lease::StoredVoid(id),
    ];
    if by.contains(&state.lease) {
        state.lease = Lease::Free;
    }
}
