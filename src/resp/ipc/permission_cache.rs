//! What a network process knows of who may do what: a cache and a role's rights on it, as an executor has found them.
//!
//! Guards that nothing counts which a message has made doubtful: a changed relation or schema, or a
//! changed role, voids what was decided on, and it is asked for again. Messages are taken in where a
//! turn begins (`network process`), so a REVOKE acts on what a client sends after it.
//!
//! An answer is late: what it was made from may have changed on its way. So it counts only if no
//! message came meanwhile, or if none came for its relation and for roles, which is watched from the
//! first answer on.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::pg::catalog::invalidation::{Everything, Roles};
use crate::pg::resp::catalog_requests::RequestQueue;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::resp::auth::target::Target;
use crate::resp::auth::{FoundPermission, PermissionError};
use crate::resp::ipc::request::{CacheName, CatalogRequest, CatalogResponse};

/// After so many answers that were doubtful when they came, an error is the answer: the catalogs
/// change faster than anybody can look.
const MOST_TRIES: u32 = 50;
/// Tickets of decisions have this bit, those of clients have not.
const TICKET: u64 = 1 << 63;
/// More than this are forgotten together: clients cannot make the table grow for ever.
const MOST: usize = 10_000;

/// Whether there is no decision because somebody has the cache locked.
pub fn is_locked(answer: &CatalogResponse) -> bool {
    matches!(
        answer,
        CatalogResponse::Permission(Err(PermissionError::Locked))
    )
}

/// What a role may do with a cache.
pub struct Permission {
    pub target: Target,
    /// Of a table: a network process may look for copies of its entries.
    pub may_be_hot: bool,
    /// Of a table: a command on it may run code that is not ours.
    pub runs_user_code: bool,
    roles: Roles,
    /// Until when the role's password counts.
    valid_until: Option<Timestamp>,
    void: Cell<bool>,
}

impl Permission {
    /// Whether a client may be told of keys that it has not read, and knows them by what it is told: of a
    /// table neither where policies hide rows nor where one key can be written in several ways.
    pub fn tells_keys(&self) -> bool {
        !self.target.is_table() || self.may_be_hot
    }

    /// Whether the password has ceased to count for a client that came by it.
    #[inline]
    pub fn is_past(&self, by_password: bool) -> bool {
        by_password && self.valid_until.is_some_and(|until| until < clock::now())
    }

    /// It counts no more, for whoever has it.
    pub fn forget(&self) {
        self.void.set(true);
    }

    /// Whether nothing has come that makes it doubtful: a promotion, too, after which an executor opens the cache.
    #[inline]
    pub fn holds(&self) -> bool {
        let is_void = self.void.get() || self.target.cache.is_stale() || self.roles != Roles::now();
        (!is_void || fault::on(Fault::DecisionNeverVoid)) && !self.target.cache.is_to_open()
    }
}

/// Why there is no decision.
#[derive(Clone, Copy)]
pub enum NotPermitted {
    /// It was asked for; who asked will be told.
    Asked,
    /// It could not be asked for; who asked tries again.
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
    /// Of an answer that was doubtful: its cache is watched from then on.
    watched: Option<Rc<Cache>>,
    tries: u32,
    waiting: Vec<u64>,
}

/// All decisions of a network process.
pub struct PermissionCache {
    network: usize,
    entries: HashMap<Place, Entry>,
    tickets: HashMap<u64, Place>,
    names: Vec<CacheName>,
    /// How often the names have changed: an answer under former ones counts for no database.
    named: u64,
    /// The relation that each database was when it was last decided.
    relations: HashMap<u32, Oid>,
    /// A database has become another cache.
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

    /// The caches' names, by the number of the database. What was decided under others is void.
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

    /// Whether a database has become another cache since this was last called.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// How many databases the protocol has.
    pub fn databases(&self) -> usize {
        self.names.len()
    }

    /// Voids what is known and fits. Who waits for an answer is not forgotten.
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

    /// What this role may do with the cache of this number. `client` is told when the answer comes.
    pub fn look_up(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
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
                // A failure is told once: the next command asks again.
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

    /// Whether the answer for a role and a database is that Citus has distributed the cache.
    pub fn is_distributed(&self, role: Oid, database: u32) -> bool {
        matches!(
            self.entries.get(&(role.to_u32(), database)),
            Some(Entry::Refused(NotPermitted::Refused(PermissionError::Distributed), since))
                if *since == Everything::now()
        )
    }

    fn ask(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
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

    /// Takes an answer; who is to go on. None: the ticket is of no decision.
    pub fn answered(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
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
        // Nothing is known: who asked asks again, after a while.
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
                    // Those who wait ask again.
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

    /// The cache of a decision. Only one is watched for each relation: what was decided with another
    /// would hear of nothing any more.
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
