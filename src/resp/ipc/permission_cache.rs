//! Keeps the permissions that a network process knows. A permission is a cache and the privileges of a role on it, as
//! an executor has found them.
//!
//! No doubtful permission may count: a changed relation, schema or role voids the permissions that depend on it, and
//! they are requested again. Each transaction that serves clients accepts invalidation messages at its beginning, after
//! the clients' input was read. So a REVOKE applies to all commands that a client sends after it.
//!
//! An answer may be outdated when it arrives, because the catalogs may change after the executor has read them. So an
//! answer counts only if no message has arrived since its request. From the first answer on, the relation is watched,
//! and later answers count if no message has arrived for the relation or for roles.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::pg::catalog::invalidation::{Everything, Roles};
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::resp::auth::command_target::Target;
use crate::resp::auth::{FoundPermission, PermissionError};
use crate::resp::ipc::catalog_request::{CacheName, CatalogRequest, CatalogResponse, WorkQueue};

/// The number of answers, all doubtful on arrival, after which the result is an error: the catalogs change faster than
/// an executor can read them.
const MOST_TRIES: u32 = 50;
/// The bit that marks tickets of permissions. Tickets of authentications, which begin with a client's number, lack it.
const TICKET: u64 = 1 << 63;
/// The number of permissions beyond which all are dropped together, so that clients cannot make the table grow without
/// limit.
const MOST: usize = 10_000;

/// Returns whether the answer names no permission because another session has locked the cache.
pub fn is_locked(answer: &CatalogResponse) -> bool {
    matches!(
        answer,
        CatalogResponse::Permission(Err(PermissionError::Locked))
    )
}

/// The privileges of a role on a cache.
pub struct Permission {
    pub target: Target,
    /// For a table cache, whether a network process may look for copies of its entries.
    pub may_be_hot: bool,
    /// For a table cache, whether a command on it may run user-defined code.
    pub runs_user_code: bool,
    roles: Roles,
    /// The time until which the role's password is valid.
    valid_until: Option<Timestamp>,
    void: Cell<bool>,
}

impl Permission {
    /// Returns whether a client may learn the keys of entries that it has not read, and can recognize them. Returns
    /// false for a table cache if policies hide rows, or if a key can be written in several ways.
    pub fn may_send_keys(&self) -> bool {
        !self.target.is_table() || self.may_be_hot
    }

    /// Returns whether the password of a client that authenticated with it has expired.
    #[inline]
    pub fn is_past(&self, by_password: bool) -> bool {
        by_password && self.valid_until.is_some_and(|until| until < clock::now())
    }

    /// Voids the permission for all clients that have it.
    pub fn forget(&self) {
        self.void.set(true);
    }

    /// Returns whether no message has made the permission doubtful. A promotion of the server counts as a message,
    /// because an executor must open the cache after it.
    #[inline]
    pub fn holds(&self) -> bool {
        let is_void = self.void.get() || self.target.cache.is_stale() || self.roles != Roles::now();
        (!is_void || fault::on(Fault::DecisionNeverVoid)) && !self.target.cache.is_to_open()
    }
}

/// Why the permission is unknown.
#[derive(Clone, Copy)]
pub enum NotPermitted {
    /// The permission was requested from an executor. The client is woken when the answer arrives.
    Asked,
    /// The queue of requests is full; the client tries again.
    NoPlace,
    Refused(PermissionError),
    /// The executor has failed.
    Failed,
}

/// The role, and the number of the database in the protocol.
type Place = (u32, u32);

enum Entry {
    Asked(Asking),
    Known(Rc<Permission>),
    Refused(NotPermitted, Everything),
}

struct Asking {
    ticket: u64,
    since: Everything,
    roles: Roles,
    named: u64,
    /// The cache of an earlier, doubtful answer; it has been watched since that answer arrived.
    watched: Option<Rc<Cache>>,
    tries: u32,
    waiting: Vec<u64>,
}

/// All permissions of a network process.
pub struct PermissionCache {
    network: usize,
    entries: HashMap<Place, Entry>,
    tickets: HashMap<u64, Place>,
    names: Vec<CacheName>,
    /// The number of times that the names have changed. An answer to a request under earlier names does not count.
    named: u64,
    /// The relation of each database when its permission was last found.
    relations: HashMap<u32, Oid>,
    /// Whether a database number has come to mean another cache since the last [`PermissionCache::take_moved`].
    moved: bool,
    next: u64,
}

impl PermissionCache {
    pub fn new(network: usize) -> PermissionCache {
        PermissionCache {
            network,
            entries: HashMap::new(),
            tickets: HashMap::new(),
            names: Vec::new(),
            named: 0,
            relations: HashMap::new(),
            moved: false,
            next: 0,
        }
    }

    /// Sets the names of the caches, in the order of their database numbers. If the names differ from the earlier
    /// names, voids all permissions.
    pub fn set_names(&mut self, names: Vec<CacheName>) {
        let mut pairs = std::iter::zip(&self.names, &names);
        let keeps = self.names.len() <= names.len()
            && pairs.all(|(one, other)| one.as_bytes() == other.as_bytes());
        if keeps && self.names.len() == names.len() {
            return;
        }
        self.moved |= !keeps;
        self.named += 1;
        self.void_if(|_| true);
        self.names = names;
    }

    /// Returns whether a database number has come to mean another cache since the last call.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Returns the number of databases of the protocol.
    pub fn databases(&self) -> usize {
        self.names.len()
    }

    /// Voids the permissions for which `fits` is true. Pending requests stay, with the clients that wait for them.
    fn void_if(&mut self, fits: impl Fn(&Permission) -> bool) {
        self.entries.retain(|_, entry| match entry {
            Entry::Asked(_) => true,
            Entry::Refused(..) => false,
            Entry::Known(permission) => {
                let goes = fits(permission);
                permission.void.set(permission.void.get() || goes);
                !goes
            }
        });
    }

    /// Returns the permission of this role on the cache of this database. If it is not known, requests it and wakes
    /// `client` when the answer arrives.
    pub fn look_up(
        &mut self,
        queue: &WorkQueue,
        role: Oid,
        database: u32,
        client: u64,
    ) -> Result<Rc<Permission>, NotPermitted> {
        let place = (role.to_u32(), database);
        match self.names.get(database as usize) {
            None if self.names.is_empty() => {
                return Err(NotPermitted::Refused(PermissionError::NoCaches));
            }
            None => return Err(NotPermitted::Refused(PermissionError::NoDatabase)),
            Some(name) if name.as_bytes().is_empty() => {
                return Err(NotPermitted::Refused(PermissionError::NoName));
            }
            Some(_) => {}
        }
        match self.entries.get_mut(&place) {
            Some(Entry::Known(permission)) if permission.holds() => {
                return Ok(Rc::clone(permission));
            }
            Some(Entry::Refused(why, since)) if *since == Everything::now() => {
                let why = *why;
                // A failure is returned once: the next command sends a new request.
                if matches!(why, NotPermitted::Failed) {
                    self.entries.remove(&place);
                }
                return Err(why);
            }
            Some(Entry::Asked(asking)) => {
                if !asking.waiting.contains(&client) {
                    asking.waiting.push(client);
                }
                return Err(NotPermitted::Asked);
            }
            _ => {}
        }
        if self.entries.len() >= MOST {
            self.void_if(|_| true);
        }
        match self.ask(queue, place, None, 0, vec![client]) {
            true => Err(NotPermitted::Asked),
            false => Err(NotPermitted::NoPlace),
        }
    }

    /// Returns whether the permission of a role in a database is refused because Citus has distributed the cache.
    pub fn is_distributed(&self, role: Oid, database: u32) -> bool {
        matches!(
            self.entries.get(&(role.to_u32(), database)),
            Some(Entry::Refused(NotPermitted::Refused(PermissionError::Distributed), since))
                if *since == Everything::now()
        )
    }

    fn ask(
        &mut self,
        queue: &WorkQueue,
        place: Place,
        watched: Option<Rc<Cache>>,
        tries: u32,
        waiting: Vec<u64>,
    ) -> bool {
        let Some(&cache) = self.names.get(place.1 as usize) else {
            return false;
        };
        let ticket = TICKET | self.next;
        let role = Oid::from_u32(place.0);
        let (since, roles) = (Everything::now(), Roles::now());
        let question = CatalogRequest::Decide { role, cache };
        if !queue.ask(self.network, ticket, question.is_slow(), question) {
            return false;
        }
        self.next += 1;
        let asking = Asking {
            ticket,
            since,
            roles,
            named: self.named,
            watched,
            tries,
            waiting,
        };
        self.tickets.insert(ticket, place);
        self.entries.insert(place, Entry::Asked(asking));
        true
    }

    /// Takes an answer, and returns the clients that continue. Returns None if the ticket is not for a permission.
    pub fn answered(
        &mut self,
        queue: &WorkQueue,
        ticket: u64,
        answer: &CatalogResponse,
    ) -> Option<Vec<u64>> {
        if ticket & TICKET == 0 {
            return None;
        }
        let place = self.tickets.remove(&ticket);
        let asked = place.and_then(|place| match self.entries.remove(&place) {
            Some(Entry::Asked(asking)) if asking.ticket == ticket => Some((place, asking)),
            Some(other) => {
                self.entries.insert(place, other);
                None
            }
            None => None,
        });
        let Some((place, asking)) = asked else {
            return Some(Vec::new());
        };
        // The permission stays unknown. The clients that wait for it request it again after a delay.
        if is_locked(answer) || asking.named != self.named {
            return Some(asking.waiting);
        }
        let quiet = asking.since == Everything::now();
        let result = match *answer {
            CatalogResponse::Permission(result) => result.map_err(NotPermitted::Refused),
            CatalogResponse::Authenticated(_)
            | CatalogResponse::ServerPrivileges(_)
            | CatalogResponse::IsRole(_)
            | CatalogResponse::Entries(_)
            | CatalogResponse::Failed => Err(NotPermitted::Failed),
        };
        let entry = match result {
            Ok(decision) => {
                let watched = asking.watched.as_ref();
                let unchanged = |cache: &Rc<Cache>| {
                    cache.relation == decision.relation
                        && !cache.is_stale()
                        && asking.roles == Roles::now()
                };
                let counts = quiet || watched.is_some_and(unchanged);
                let cache = self.adopt(&decision);
                if !counts && asking.tries < MOST_TRIES {
                    let (tries, waiting) = (asking.tries + 1, asking.waiting.clone());
                    if self.ask(queue, place, Some(cache), tries, waiting) {
                        return Some(Vec::new());
                    }
                    // The clients that wait send a new request.
                    return Some(asking.waiting);
                }
                if counts {
                    let former = self.relations.insert(place.1, decision.relation);
                    self.moved |= former.is_some_and(|former| former != decision.relation);
                }
                match counts {
                    true => Entry::Known(Rc::new(Permission {
                        target: Target {
                            cache,
                            privileges: decision.privileges,
                        },
                        may_be_hot: decision.may_be_hot,
                        runs_user_code: decision.runs_user_code,
                        roles: Roles::now(),
                        valid_until: decision.valid_until,
                        void: Cell::new(false),
                    })),
                    false => Entry::Refused(NotPermitted::Failed, Everything::now()),
                }
            }
            Err(_) if !quiet && asking.tries < MOST_TRIES => {
                let (tries, waiting) = (asking.tries + 1, asking.waiting.clone());
                if self.ask(queue, place, asking.watched, tries, waiting) {
                    return Some(Vec::new());
                }
                return Some(asking.waiting);
            }
            Err(why) => Entry::Refused(why, Everything::now()),
        };
        self.entries.insert(place, entry);
        Some(asking.waiting)
    }

    /// Returns the cache of a permission. Only one object of each relation is watched, so permissions that hold another
    /// object are voided: nothing would tell them of changes.
    fn adopt(&mut self, decision: &FoundPermission) -> Rc<Cache> {
        let cache = registry::adopt(
            decision.relation,
            decision.settings,
            decision.value_type,
            decision.storage,
        );
        self.void_if(|permission| {
            let other = &permission.target.cache;
            other.relation == cache.relation && !Rc::ptr_eq(other, &cache)
        });
        cache
    }
}
