//! Keeps the answers of executors in a network process, and the clients that wait for them.
//!
//! Three rules apply. An answer counts only while its [`Standing`] holds. All clients that need the same answer wait
//! for one request. A failure is returned only once: the next client that needs the answer requests it again.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::cache::table::entry_count::EntryCount;
use crate::pg::catalog::invalidation::Roles;
use crate::resp::auth::ServerPrivileges;
use crate::resp::ipc::catalog_request::{CatalogRequest, CatalogResponse, RoleName, WorkQueue};
use crate::resp::ipc::permission_cache::NotPermitted;

/// The number of answers beyond which all are dropped together, so that clients cannot make the table grow without
/// limit.
const MOST: usize = 10_000;

/// A question of a network process, which is also the key under which its answer is kept.
pub trait Question: Copy + Eq + Hash {
    type Value: Copy;
    type Standing: Standing;
    /// The bit that is set in the tickets of this kind of question. Tickets of permissions have bit 63, and tickets of
    /// authentications have none of these bits.
    const TAG: u64;

    fn request(self) -> CatalogRequest;

    /// Returns the value in an answer, or None if the executor has failed.
    fn value(answer: &CatalogResponse) -> Option<Self::Value>;
}

/// The validity of an answer.
pub trait Standing: Copy {
    fn now() -> Self;

    /// Returns the validity of an answer whose request was sent at `asked`, or None if the answer no longer counts.
    fn of_answer(asked: Self) -> Option<Self>;

    fn holds(self) -> bool;
}

/// An answer about roles counts until a role changes.
impl Standing for Roles {
    fn now() -> Roles {
        Roles::now()
    }

    fn of_answer(asked: Roles) -> Option<Roles> {
        asked.holds().then_some(asked)
    }

    fn holds(self) -> bool {
        self == Roles::now()
    }
}

/// An answer that counts for one second after it arrives.
#[derive(Clone, Copy)]
pub struct Fresh(Instant);

impl Standing for Fresh {
    fn now() -> Fresh {
        Fresh(Instant::now())
    }

    fn of_answer(_: Fresh) -> Option<Fresh> {
        Some(Fresh::now())
    }

    fn holds(self) -> bool {
        self.0.elapsed() < Duration::from_secs(1)
    }
}

/// The server privileges of a role: to see all clients, to end clients of other roles, and to reset counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivilegesOf(pub Oid);

impl Question for PrivilegesOf {
    type Value = ServerPrivileges;
    type Standing = Roles;
    const TAG: u64 = 1 << 62;

    fn request(self) -> CatalogRequest {
        CatalogRequest::ServerPrivileges { role: self.0 }
    }

    fn value(answer: &CatalogResponse) -> Option<ServerPrivileges> {
        match answer {
            CatalogResponse::ServerPrivileges(privileges) => Some(*privileges),
            _ => None,
        }
    }
}

/// The number of entries of a table, for INFO.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntriesOf(pub Oid);

impl Question for EntriesOf {
    type Value = EntryCount;
    type Standing = Fresh;
    const TAG: u64 = 1 << 61;

    fn request(self) -> CatalogRequest {
        CatalogRequest::Entries { relation: self.0 }
    }

    fn value(answer: &CatalogResponse) -> Option<EntryCount> {
        match answer {
            CatalogResponse::Entries(count) => Some(*count),
            _ => None,
        }
    }
}

/// Whether a role has a name, for CLIENT KILL USER.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IsRole(pub RoleName);

impl Question for IsRole {
    type Value = bool;
    type Standing = Roles;
    const TAG: u64 = 1 << 60;

    fn request(self) -> CatalogRequest {
        CatalogRequest::IsRole { name: self.0 }
    }

    fn value(answer: &CatalogResponse) -> Option<bool> {
        match answer {
            CatalogResponse::IsRole(is_role) => Some(*is_role),
            _ => None,
        }
    }
}

enum Known<Q: Question> {
    Asked {
        since: Q::Standing,
        waiting: Vec<u64>,
    },
    /// The answer. None means that the executor has failed.
    Answered(Q::Standing, Option<Q::Value>),
}

/// The answers to one kind of question.
pub struct Answers<Q: Question> {
    next: u32,
    known: HashMap<Q, Known<Q>>,
    tickets: HashMap<u32, Q>,
}

impl<Q: Question> Default for Answers<Q> {
    fn default() -> Answers<Q> {
        Answers {
            next: 0,
            known: HashMap::new(),
            tickets: HashMap::new(),
        }
    }
}

impl<Q: Question> Answers<Q> {
    /// Takes an answer, and returns the clients that wait for it. Returns None if the ticket is of another kind.
    pub fn answered(&mut self, ticket: u64, answer: &CatalogResponse) -> Option<Vec<u64>> {
        if ticket & !u64::from(u32::MAX) != Q::TAG {
            return None;
        }
        let question = self.tickets.remove(&(ticket as u32));
        let asked = question.and_then(|question| self.known.remove_entry(&question));
        let Some((question, Known::Asked { since, waiting })) = asked else {
            return Some(Vec::new());
        };
        // If the answer no longer counts, the clients that waited for it send a new request.
        if let Some(standing) = Q::Standing::of_answer(since) {
            let known = Known::Answered(standing, Q::value(answer));
            self.known.insert(question, known);
        }
        Some(waiting)
    }

    /// Returns the answer if it is known, and None if the executor has failed. If the answer is not known, requests it
    /// and returns an error; the client is woken when the answer arrives.
    pub fn look_up(
        &mut self,
        queue: &WorkQueue,
        network: usize,
        question: Q,
        client: u64,
    ) -> Result<Option<Q::Value>, NotPermitted> {
        match self.known.get_mut(&question) {
            Some(Known::Answered(standing, Some(value))) if standing.holds() => {
                return Ok(Some(*value));
            }
            Some(Known::Answered(_, None)) => {
                self.known.remove(&question);
                return Ok(None);
            }
            Some(Known::Asked { waiting, .. }) => {
                if !waiting.contains(&client) {
                    waiting.push(client);
                }
                return Err(NotPermitted::Asked);
            }
            _ => {}
        }
        let request = question.request();
        let ticket = Q::TAG | u64::from(self.next);
        if !queue.ask(network, ticket, request.is_slow(), request) {
            return Err(NotPermitted::NoPlace);
        }
        self.forget();
        self.tickets.insert(self.next, question);
        self.next = self.next.wrapping_add(1);
        let asked = Known::Asked {
            since: Q::Standing::now(),
            waiting: vec![client],
        };
        self.known.insert(question, asked);
        Err(NotPermitted::Asked)
    }

    /// Removes answers that no longer count, and all answers if there are too many.
    fn forget(&mut self) {
        let is_full = self.known.len() >= MOST;
        self.known.retain(|_, known| match known {
            Known::Asked { .. } => true,
            Known::Answered(standing, _) => !is_full && standing.holds(),
        });
    }

    /// Returns the last answer, if one is kept.
    pub fn last(&self, question: Q) -> Option<Q::Value> {
        match self.known.get(&question)? {
            Known::Answered(_, value) => *value,
            Known::Asked { .. } => None,
        }
    }
}
