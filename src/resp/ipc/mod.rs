//! What a network process asks executors and hands over to them, and the answers that it keeps.
//!
//! The shared memory between the processes is `crate::pg::resp`: `catalog_requests` and `work_queue`.

pub mod answers;
pub mod pending_batch;
pub mod permission_cache;
pub mod request;

use self::answers::{Answers, EntriesOf, IsRole, PrivilegesOf};
use self::permission_cache::PermissionCache;
use self::request::{CatalogRequest, CatalogResponse};
use crate::pg::resp::catalog_requests::RequestQueue;

/// What a network process knows of the catalogs.
pub struct Catalog {
    pub permissions: PermissionCache,
    pub privileges: Answers<PrivilegesOf>,
    pub entries: Answers<EntriesOf>,
    pub roles: Answers<IsRole>,
}

impl Catalog {
    pub fn new(network: usize) -> Catalog {
        Catalog {
            permissions: PermissionCache::new(network),
            privileges: Answers::default(),
            entries: Answers::default(),
            roles: Answers::default(),
        }
    }

    /// Takes an answer; returns the clients that wait for it. None: it is that to an authentication.
    pub fn answered(
        &mut self,
        queue: &RequestQueue<CatalogRequest, CatalogResponse>,
        ticket: u64,
        answer: &CatalogResponse,
    ) -> Option<Vec<u64>> {
        self.privileges
            .answered(ticket, answer)
            .or_else(|| self.entries.answered(ticket, answer))
            .or_else(|| self.roles.answered(ticket, answer))
            .or_else(|| self.permissions.answered(queue, ticket, answer))
    }
}
