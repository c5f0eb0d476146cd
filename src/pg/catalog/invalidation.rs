//! Discards what a session remembers about relations and privileges when another session changes them.
//!
//! Postgres calls the functions here for a changed relation (its columns, indexes, triggers, name, statistics), for a
//! renamed schema and for a changed function. It also calls them for any change of a role, a membership or the
//! database's owner, who is the only member of `pg_database_owner`. A callback may run whenever a lock is taken, so it
//! only raises flags and counters, and never reads a catalog.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::rc::{Rc, Weak};

use pgrx::pg_sys;
use pgrx::prelude::*;

/// The flag of each watched relation, by OID.
type Watches = HashMap<u32, Weak<Cell<bool>>>;

thread_local! {
    /// Never dropped, because callbacks may come as long as the process lives.
    static WATCHES: ManuallyDrop<RefCell<Watches>> = ManuallyDrop::default();
}

/// Watches one relation. A caller begins the watch before it reads the relation's properties, so that the watch misses
/// no change during the read.
pub struct Watch {
    relation: pg_sys::Oid,
    stale: Rc<Cell<bool>>,
    roles: Roles,
}

impl Watch {
    /// Begins the watch. Shares an existing watch of the relation that has seen no change.
    pub fn over(relation: pg_sys::Oid) -> Watch {
        let stale = WATCHES.with(|watches| {
            let mut watches = watches.borrow_mut();
            let known = watches.get(&relation.to_u32()).and_then(Weak::upgrade);
            known.filter(|stale| !stale.get()).unwrap_or_else(|| {
                let stale = Rc::new(Cell::new(false));
                watches.insert(relation.to_u32(), Rc::downgrade(&stale));
                stale
            })
        });
        Watch {
            relation,
            stale,
            roles: Roles::now(),
        }
    }

    /// Returns whether the relation may have changed since the watch began.
    pub fn is_stale(&self) -> bool {
        self.stale.get()
    }

    /// Returns whether any role or membership may have changed since the watch began. Memberships decide which policies
    /// apply to a role, and a plan contains the policies that applied when Postgres made the plan. Postgres plans again
    /// for another role, but after a change of membership only in its latest minor releases.
    pub fn has_other_roles(&self) -> bool {
        self.roles != Roles::now()
    }
}

/// A generation of the database's functions and schemas. Equal states mean that nothing changed between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Functions(u64);

impl Functions {
    /// Returns the current state, as of the messages that this session has processed.
    pub fn now() -> Functions {
        Functions(FUNCTIONS.get())
    }
}

/// A generation of the roles: memberships, attributes, the database's owner. Equal states mean that nothing changed
/// between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Roles(u64);

impl Roles {
    /// Returns the current state, as of the messages that this session has processed.
    pub fn now() -> Roles {
        Roles(ROLES.get())
    }
}

/// A generation of all relations, roles, functions and schemas. Equal states mean that nothing changed between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Everything(u64, Functions);

impl Everything {
    /// Returns the current state, as of the messages that this session has processed. A role's change counts as a
    /// change of all relations.
    pub fn now() -> Everything {
        Everything(REVOCATIONS.get(), Functions::now())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHES.with(|watches| {
            let mut watches = watches.borrow_mut();
            let relation = self.relation.to_u32();
            let is_last = Rc::strong_count(&self.stale) == 1;
            if watches
                .get(&relation)
                .is_some_and(|w| is_last && w.as_ptr() == Rc::as_ptr(&self.stale))
            {
                watches.remove(&relation);
            }
        });
    }
}

/// Privileges of a user on a relation, which the session remembers after a check found them granted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KnownPrivilege {
    pub relation: pg_sys::Oid,
    pub user: pg_sys::Oid,
    pub mask: u64,
}

/// The number of remembered privileges. It is small, because a session uses few caches at a time; a new privilege
/// replaces the older one at its index.
const PLACES: usize = 64;

thread_local! {
    static GRANTED: [Cell<Option<KnownPrivilege>>; PLACES] = const { [const { Cell::new(None) }; PLACES] };
    /// Rises with each message that may revoke a privilege.
    static REVOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Rises with each message about a function or a schema.
    static FUNCTIONS: Cell<u64> = const { Cell::new(0) };
    /// Rises with each message about a role, a membership or the database's owner.
    static ROLES: Cell<u64> = const { Cell::new(0) };
}

impl KnownPrivilege {
    fn place(self) -> usize {
        let mixed = self.relation.to_u32() ^ (self.mask as u32).wrapping_mul(0x9E37_79B9);
        mixed as usize % PLACES
    }

    /// Returns whether the last check found the privileges granted, and no message since the check may have revoked
    /// them. The answer is as fresh as the system caches that the check read, because the same messages invalidate
    /// both.
    #[inline]
    pub fn is_known(self) -> bool {
        GRANTED.with(|granted| granted[self.place()].get() == Some(self))
    }

    /// Runs `check` and returns its result. Remembers a granted privilege, unless a message arrived during the check.
    pub fn learn(self, check: impl FnOnce() -> bool) -> bool {
        let before = REVOCATIONS.get();
        let granted = check();
        if granted && before == REVOCATIONS.get() {
            GRANTED.with(|places| places[self.place()].set(Some(self)));
        }
        granted
    }
}

/// Forgets the privileges on a relation whose definition or owner may have changed. Forgets all privileges if `of` is
/// None, after a message about a role, a membership or the database's owner.
fn forget_privileges(of: Option<pg_sys::Oid>) {
    REVOCATIONS.set(REVOCATIONS.get() + 1);
    GRANTED.with(|granted| {
        for place in granted {
            let goes = |known: KnownPrivilege| of.is_none_or(|relation| known.relation == relation);
            if place.get().is_some_and(goes) {
                place.set(None);
            }
        }
    });
}

#[pg_guard]
unsafe extern "C-unwind" fn role_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    ROLES.set(ROLES.get() + 1);
    forget_privileges(None);
}

/// Registers the callbacks; called when the library is loaded.
pub fn register() {
    // SAFETY: called once while the library is loaded; the callbacks live as long as the library,
    // which Postgres never unloads.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), pg_sys::Datum::null());
        pg_sys::CacheRegisterSyscacheCallback(
            pg_sys::SysCacheIdentifier::NAMESPACEOID as i32,
            Some(schema_changed),
            pg_sys::Datum::null(),
        );
        pg_sys::CacheRegisterSyscacheCallback(
            pg_sys::SysCacheIdentifier::PROCOID as i32,
            Some(function_changed),
            pg_sys::Datum::null(),
        );
        for cache in [
            pg_sys::SysCacheIdentifier::AUTHOID,
            pg_sys::SysCacheIdentifier::AUTHMEMROLEMEM,
            pg_sys::SysCacheIdentifier::AUTHMEMMEMROLE,
            pg_sys::SysCacheIdentifier::DATABASEOID,
        ] {
            pg_sys::CacheRegisterSyscacheCallback(
                cache as i32,
                Some(role_changed),
                pg_sys::Datum::null(),
            );
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_changed(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    forget_privileges((relation != pg_sys::InvalidOid).then_some(relation));
    if relation == pg_sys::InvalidOid {
        return flag_all();
    }
    WATCHES.with(|watches| {
        if let Some(stale) = watches
            .borrow()
            .get(&relation.to_u32())
            .and_then(Weak::upgrade)
        {
            stale.set(true);
        }
    });
}

#[pg_guard]
unsafe extern "C-unwind" fn schema_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    FUNCTIONS.set(FUNCTIONS.get() + 1);
    flag_all();
}

#[pg_guard]
unsafe extern "C-unwind" fn function_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    FUNCTIONS.set(FUNCTIONS.get() + 1);
}

fn flag_all() {
    WATCHES.with(|watches| {
        for stale in watches.borrow().values().filter_map(Weak::upgrade) {
            stale.set(true);
        }
    });
}
