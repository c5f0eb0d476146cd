//! Requests to executors and their answers, as plain data that passes through shared memory. `auth` finds the answers.
//! Every type here is `Copy` and contains no pointer, because a pointer would be meaningless in the other process.

use pgrx::pg_sys::Oid;

use crate::cache::table::entry_count::EntryCount;
use crate::pg::resp::work_queue;
use crate::resp::auth::{
    AuthFailure, Authenticated, FoundPermission, Peer, PermissionError, ServerPrivileges,
};
use crate::resp::net::bounded_text::Short;
use crate::resp::net::certificate::Certificate;

/// The work queue of this server.
pub type WorkQueue = work_queue::WorkQueue<CatalogRequest, CatalogResponse>;

/// The name of a role; no name in Postgres is longer.
pub type RoleName = Short<64>;
/// The quoted name of a cache, including its schema.
pub type CacheName = Short<264>;
/// A password; a request before authentication cannot be longer.
pub type Password = Short<4096>;

/// A request that an executor answers, because it reads catalogs and may wait.
#[derive(Clone, Copy)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in a place of shared memory, which has room for the largest"
)]
pub enum CatalogRequest {
    /// Whether a client may act as this role, by its password or by a line of pg_hba.conf that needs no password.
    Authenticate {
        user: RoleName,
        password: Option<Password>,
        peer: Peer,
        certificate: Option<Certificate>,
    },
    /// The privileges of a role on a cache.
    Decide { role: Oid, cache: CacheName },
    /// The server privileges of a role.
    ServerPrivileges { role: Oid },
    /// Whether a role has this name.
    IsRole { name: RoleName },
    /// The number of entries of a table.
    Entries { relation: Oid },
}

impl CatalogRequest {
    /// Returns whether the request may take milliseconds, because it hashes a password thousands of times or reads
    /// blocks from disk.
    pub fn is_slow(&self) -> bool {
        matches!(
            self,
            CatalogRequest::Authenticate { .. } | CatalogRequest::Entries { .. }
        )
    }
}

/// The answer to a catalog request.
#[derive(Clone, Copy)]
#[allow(
    clippy::large_enum_variant,
    reason = "it lies in a place of shared memory, which has room for the largest"
)]
pub enum CatalogResponse {
    Authenticated(Result<Authenticated, AuthFailure>),
    Permission(Result<FoundPermission, PermissionError>),
    ServerPrivileges(ServerPrivileges),
    IsRole(bool),
    Entries(EntryCount),
    /// An error occurred or the executor ended, so the answer is unknown.
    Failed,
}
