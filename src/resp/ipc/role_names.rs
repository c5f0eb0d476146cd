//! Which names are roles, for CLIENT KILL USER: an executor knows, and a network process keeps the answer until roles change.

use std::collections::HashMap;

use crate::pg::catalog::invalidation::Roles;
use crate::pg::resp::catalog_requests::RequestQueue;
use crate::resp::ipc::permission_cache::NotPermitted;
use crate::resp::ipc::request::{CatalogRequest, CatalogResponse, RoleName};

/// Tickets of these questions have this bit and none of those of decisions, powers and tallies.
const TICKET: u64 = 1 << 60;
/// More names are forgotten together.
const MOST: usize = 1000;

enum Known {
    Asked {
        ticket: u64,
        since: Roles,
        waiting: Vec<u64>,
    },
    Said(Roles, bool),
}

/// The names that clients have asked about.
#[derive(Default)]
pub struct RoleNames {
    next: u32,
    names: HashMap<Box<[u8]>, Known>,
}

impl RoleNames {
    /// Takes an answer; returns the clients that wait for it. None: the ticket is of another question.
    pub fn answered(&mut self, of: u64, answer: &CatalogResponse) -> Option<Vec<u64>> {
        if of & !u64::from(u32::MAX) != TICKET {
            return None;
        }
        let is_of = |known: &Known| matches!(known, Known::Asked { ticket, .. } if *ticket == of);
        let found = self.names.iter().find(|(_, known)| is_of(known));
        let name = found.map(|(name, _)| name.clone());
        let Some((name, Known::Asked { since, waiting, .. })) =
            name.and_then(|name| self.names.remove_entry(&name))
        else {
            return Some(Vec::new());
        };
        // After a failure, and after a change of roles meanwhile, those who wait ask again.
        if let CatalogResponse::IsRole(is_role) = answer {
            self.names.insert(name, Known::Said(since, *is_role));
        }
        Some(waiting)
    }

    /// Returns whether a role has this name; otherwise the client is called when that is known.
    pub fn look_up(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
        network: usize,
        name: RoleName,
        client: u64,
    ) -> Result<bool, NotPermitted> {
        let now = Roles::now();
        match self.names.get_mut(name.as_bytes()) {
            Some(Known::Said(since, is_role)) if *since == now => return Ok(*is_role),
            Some(Known::Asked { waiting, .. }) => {
                if !waiting.contains(&client) {
                    waiting.push(client);
                }
                return Err(NotPermitted::Asked);
            }
            _ => {}
        }
        let ticket = TICKET | u64::from(self.next);
        let question = CatalogRequest::IsRole { name };
        if !queue.ask(network, ticket, question.is_slow(), question) {
            return Err(NotPermitted::NoPlace);
        }
        self.next = self.next.wrapping_add(1);
        if self.names.len() >= MOST {
            self.names
                .retain(|_, known| matches!(known, Known::Asked { .. }));
        }
        let asked = Known::Asked {
            ticket,
            since: now,
            waiting: vec![client],
        };
        self.names.insert(name.as_bytes().into(), asked);
        Err(NotPermitted::Asked)
    }
}
