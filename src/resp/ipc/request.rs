//! What a network process asks an executor, and what it is answered: plain data that goes through shared memory.

use pgrx::pg_sys::Oid;

use crate::cache::table::entry_count::EntryCount;
use crate::resp::auth::{
    AuthFailure, Authenticated, FoundPermission, Peer, PermissionError, ServerPrivileges,
};
use crate::resp::net::bounded_text::Short;
use crate::resp::net::certificate::Certificate;

/// A role's name: Postgres has none that are longer.
pub type RoleName = Short<64>;
/// A cache's name, its schema with it, quoted.
pub type CacheName = Short<264>;
/// A password: a request before authentication has no more bytes.
pub type Password = Short<4096>;

/// What can wait.
#[derive(Clone, Copy)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in a place of shared memory, which has room for the largest"
)]
pub enum CatalogRequest {
    /// Whether a client is this role: with its password, or by what pg_hba.conf says without one.
    Authenticate {
        user: RoleName,
        password: Option<Password>,
        peer: Peer,
        certificate: Option<Certificate>,
    },
    /// What a role may do with a cache.
    Decide { role: Oid, cache: CacheName },
    /// What a role may do besides.
    ServerPrivileges { role: Oid },
    /// Whether a role has this name.
    IsRole { name: RoleName },
    /// How many entries a table has.
    Entries { relation: Oid },
}

impl CatalogRequest {
    /// Whether it may take milliseconds: a password is hashed thousands of times, blocks are read from the disk.
    pub fn is_slow(&self) -> bool {
        matches!(
            self,
            CatalogRequest::Authenticate { .. } | CatalogRequest::Entries { .. }
        )
    }
}

/// What the executor says.
#[derive(Clone, Copy)]
pub enum CatalogResponse {
    Authenticated(Result<Authenticated, AuthFailure>),
    Permission(Result<FoundPermission, PermissionError>),
    ServerPrivileges(ServerPrivileges),
    IsRole(bool),
    Entries(EntryCount),
    /// An error came in between, or the executor ended: nothing is known.
    Failed,
}
