//! The loaders of this session: their plans, and the keys that they are loading.
//!
//! A loader that fetches the key that it is loading would wait for itself, so its fetch raises an error.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::model::key::Key;
use crate::error::Error;
use crate::pg::catalog::invalidation::Roles;
use crate::pg::spi::loader::{Loaded, Loader};
use crate::pg::value::datum::Text;

/// The number of plans that a session keeps. An application has a handful of loaders. A loader whose text is built for
/// each key is planned each time anyway.
const KEPT: usize = 64;

/// The text of a loader, and the state of the roles when it was planned, because a plan contains policies.
type Name = (Box<[u8]>, Roles);

type Kept = Vec<(Name, Rc<Loader>)>;

thread_local! {
    /// The most recently used plan comes last. Never dropped, because a process frees the memory of the plans before
    /// its thread-locals.
    static PLANS: ManuallyDrop<RefCell<Kept>> = ManuallyDrop::default();
    static UNSTORED: Cell<u64> = const { Cell::new(0) };
    static AT_WORK: RefCell<Vec<(u32, Box<[u8]>)>> = const { RefCell::new(Vec::new()) };
}

/// Raises an error for a fetch of a key that this session is loading.
pub fn check_recursion(relation: Oid, key: Key) -> Result<(), Error> {
    let text = key.text();
    let loading = AT_WORK.with(|at_work| {
        let is_it = |(of, bytes): &(u32, Box<[u8]>)| {
            *of == relation.to_u32() && bytes.as_ref() == text.bytes()
        };
        at_work.borrow().iter().any(is_it)
    });
    match loading {
        true => Err(Error::LoaderRecursion),
        false => Ok(()),
    }
}

/// Returns how many values this session has loaded for a table and returned without storing them.
pub fn unstored() -> u64 {
    UNSTORED.get()
}

/// Counts a value that this session has loaded for a table and returned without storing it.
pub fn note_unstored() {
    UNSTORED.set(UNSTORED.get() + 1);
}

/// Runs a loader for a key.
pub fn run(relation: Oid, key: Key, text: Text) -> Result<Loaded, Error> {
    let loader = planned(text)?;
    let _at_work = AtWork::on(relation, key);
    loader.run(key.text(), text)
}

fn planned(text: Text) -> Result<Rc<Loader>, Error> {
    let kept = PLANS.with(|plans| {
        let plans = &mut *plans.borrow_mut();
        let place = plans
            .iter()
            .position(|((of, roles), _)| of.as_ref() == text.bytes() && *roles == Roles::now())?;
        let entry = plans.remove(place);
        let loader = Rc::clone(&entry.1);
        plans.push(entry);
        Some(loader)
    });
    if let Some(loader) = kept {
        return Ok(loader);
    }
    let roles = Roles::now(); // before planning, because an invalidation may arrive during it
    let loader = Rc::new(Loader::prepare(text)?);
    let too_old = PLANS.with(|plans| {
        let plans = &mut *plans.borrow_mut();
        plans.push(((text.bytes().into(), roles), Rc::clone(&loader)));
        (plans.len() > KEPT).then(|| plans.remove(0))
    });
    drop(too_old); // frees its plan, outside the borrow
    Ok(loader)
}

/// Marks a key as being loaded by this session while this value lives. The mark ends even if the load fails.
struct AtWork;

impl AtWork {
    fn on(relation: Oid, key: Key) -> AtWork {
        let entry = (relation.to_u32(), key.text().bytes().into());
        AT_WORK.with(|at_work| at_work.borrow_mut().push(entry));
        AtWork
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.with(|at_work| drop(at_work.borrow_mut().pop()));
    }
}
