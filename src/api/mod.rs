//! The SQL API: one Rust function for each SQL function of `sql/pgcache--*.sql`.
//!
//! Each function checks its arguments, names the privileges that the caller needs, and converts values. `cache`
//! implements the meaning of the call. The SQL declarations are written by hand. A declaration that differs from its
//! Rust function would cause undefined behaviour, so `t/tests/signatures.rs` compares each pair.

/// Declares functions on entries; see [`crate::pg::value::call::functions`].
macro_rules! functions {
    ($($functions:tt)*) => {
        $crate::pg::value::call::functions! {
            $crate::pg::catalog::distributed::citus_is_loaded,
            $crate::cache::distribute::route::choose,
            $crate::cache::distribute::route::leave,
            $crate::cache::distribute::distributed_call::Route;
            $($functions)*
        }
    };
}

pub mod definition;
pub mod depend;
pub mod distribute;
pub mod expiry;
pub mod many_entries;
pub mod monitor;
pub mod rate_limit;
pub mod read;
pub mod redis_protocol;
pub mod refresh;
pub mod remove;
pub mod write;

use pgrx::pg_sys::panic::ErrorReport;

use crate::cache::distribute::distributed_call::Kind;
use crate::pg::catalog::privilege::Privileges;

/// The result of a function, or an error for the user.
pub type Answer<T> = Result<T, ErrorReport>;

/// The privileges that each kind of function needs, as docs/reference.md lists them.
pub const TO_READ: Privileges = Privileges::SELECT;
pub const TO_WRITE: Privileges = Privileges::SELECT
    .and(Privileges::INSERT)
    .and(Privileges::UPDATE);
pub const TO_DELETE: Privileges = Privileges::DELETE;
pub const TO_TAKE: Privileges = Privileges::SELECT.and(Privileges::DELETE);

// The kind of each function, for calls on caches that Citus distributes. A kind contains the position of the argument
// that decides which nodes answer the call.
pub const READ: Kind = Kind::Read { key: 0 };
pub const WRITE: Kind = Kind::Write { key: 0 };
pub const FETCH: Kind = Kind::Fetch { key: 0 };
pub const LEASE: Kind = Kind::Lease { key: 0, wait: 1 };
pub const READ_MANY: Kind = Kind::ReadMany { keys: 0 };
pub const WRITE_MANY: Kind = Kind::WriteMany {
    keys: 0,
    values: None,
};
pub const SET_MANY: Kind = Kind::WriteMany {
    keys: 0,
    values: Some(1),
};
pub const PAGE: Kind = Kind::Page { most: 2 };
pub const COUNT: Kind = Kind::Sum {
    most: None,
    writes: false,
};
pub const REMOVE: Kind = Kind::Sum {
    most: None,
    writes: true,
};
pub const SWEEP: Kind = Kind::Sum {
    most: Some(1),
    writes: true,
};
