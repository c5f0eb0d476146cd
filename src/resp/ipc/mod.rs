//! Sends requests from network processes to executors: catalog requests, whose answers are cached, and batches of
//! commands. The queue in shared memory through which they pass is `crate::pg::resp::work_queue`.
//!
//! An answer must count only until an invalidation message makes it doubtful; otherwise a client would keep a revoked
//! privilege.

pub mod answers;
pub mod catalog_request;
pub mod pending_batch;
pub mod permission_cache;

use self::answers::{Answers, EntriesOf, IsRole, PrivilegesOf};
use self::catalog_request::{CatalogResponse, WorkQueue};
use self::permission_cache::PermissionCache;

/// Answers about the catalogs that a network process keeps.
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

    /// Takes an answer, and returns the clients that wait for it. Returns None for the answer to an authentication.
    pub fn answered(
        &mut self,
        queue: &WorkQueue,
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
