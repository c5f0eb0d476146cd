//! What a client's role may do besides its commands on entries: see all clients, end those of others,
//! set the figures back. an executor knows; a network process keeps what it has said for as long as no message about
//! roles comes.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use crate::pg::catalog::invalidation::Roles;
use crate::pg::resp::catalog_requests::RequestQueue;
use crate::resp::auth::ServerPrivileges;
use crate::resp::ipc::permission_cache::NotPermitted;
use crate::resp::ipc::request::{CatalogRequest, CatalogResponse};

/// Tickets of these questions have this bit; those of clients and of decisions have not.
pub const TICKET: u64 = 1 << 62;

enum Known {
    /// Asked for; who waits.
    Asked(Roles, Vec<u64>),
    Said(Roles, ServerPrivileges),
    /// The executor has failed: said once.
    Failed,
}

/// What a network process knows, by role.
#[derive(Default)]
pub struct ServerPrivilegeCache(HashMap<u32, Known>);

impl ServerPrivilegeCache {
    /// Takes an answer; who is to go on. None: the ticket is of another question.
    pub fn answered(&mut self, ticket: u64, answer: &CatalogResponse) -> Option<Vec<u64>> {
        if ticket & !u64::from(u32::MAX) != TICKET {
            return None;
        }
        let role = ticket as u32;
        let Some(Known::Asked(since, waiting)) = self.0.remove(&role) else {
            return Some(Vec::new());
        };
        match answer {
            // What was said before a change counts no more: those who wait ask again.
            CatalogResponse::ServerPrivileges(_) if since != Roles::now() => {}
            CatalogResponse::ServerPrivileges(privileges) => {
                self.0.insert(role, Known::Said(since, *privileges));
            }
            _ => {
                self.0.insert(role, Known::Failed);
            }
        }
        Some(waiting)
    }
}

impl ServerPrivilegeCache {
    /// The powers of a role; otherwise the client is told when they are known.
    pub fn look_up(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
        network: usize,
        role: Oid,
        client: u64,
    ) -> Result<ServerPrivileges, NotPermitted> {
        let number = role.to_u32();
        match self.0.get_mut(&number) {
            Some(Known::Said(since, privileges)) if *since == Roles::now() => {
                return Ok(*privileges);
            }
            Some(Known::Asked(_, waiting)) => {
                if !waiting.contains(&client) {
                    waiting.push(client);
                }
                return Err(NotPermitted::Asked);
            }
            Some(Known::Failed) => {
                self.0.remove(&number);
                return Ok(ServerPrivileges::default());
            }
            _ => {}
        }
        let question = CatalogRequest::ServerPrivileges { role };
        let ticket = TICKET | u64::from(number);
        if !queue.ask(network, ticket, question.is_slow(), question) {
            return Err(NotPermitted::NoPlace);
        }
        // Roles that are gone are forgotten together with the others that are no longer true.
        let now = Roles::now();
        let keep = |known: &mut Known| !matches!(known, Known::Said(since, _) if *since != now);
        self.0.retain(|_, known| keep(known));
        self.0.insert(number, Known::Asked(now, vec![client]));
        Err(NotPermitted::Asked)
    }
}
