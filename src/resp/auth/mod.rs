//! Authenticates clients and finds the privileges of their roles.
//!
//! An executor runs this code in a transaction, because it reads the catalogs and may take some milliseconds. The
//! results are plain data, which the executor returns to the network process that sent the request.
//!
//! Two rules hold. First, the checks are those that Postgres makes for a session, in the same order: the first matching
//! line of pg_hba.conf, then its method, then LOGIN, CONNECT and the connection limits. Second, the reply to a failure
//! gives the same reason whether or not the role exists; otherwise the reply would reveal which roles exist.

pub mod command_target;

use std::ffi::CString;

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cache::catalog::registry::{Storage, find};
use crate::cache::memory::handle::TierHandle;
use crate::cache::model::settings::Settings;
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::catalog::{name, privilege};
use crate::pg::encoding::{decode, printable};
use crate::pg::resp::hba;
use crate::pg::resp::hba::line::{Line, Method, ShownCertificate};
use crate::pg::resp::hba::matching::Login;
pub use crate::pg::resp::hba::{Peer, PeerAddress};
use crate::pg::resp::{login, password};
use crate::pg::session::clock::Timestamp;
use crate::pg::session::{self, lock};
use crate::pg::shmem::tier::tier;
use crate::pg::value::datum::{Text, ValueType};
use crate::resp::net::certificate::Certificate;

/// The longest name in Postgres. A longer name is truncated, as for a session.
const LONGEST_NAME: usize = 63;

/// A client that has authenticated.
#[derive(Debug, Clone, Copy)]
pub struct Authenticated {
    pub role: Oid,
    /// Whether the client authenticated with a password, which may expire ([`FoundPermission::valid_until`]).
    pub by_password: bool,
    pub is_superuser: bool,
    /// The number of clients of the role that may be connected, including this client: CONNECTION LIMIT minus the
    /// role's Postgres sessions. None means no limit.
    pub room_of_role: Option<u32>,
    /// The number of clients of all roles that may be connected to the database, including this client. None means no
    /// limit.
    pub room_of_database: Option<u32>,
}

/// Why authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFailure {
    /// The line requires a password, and the client sent none.
    NeedsPassword,
    /// The password is wrong or has expired, the role does not exist or lacks LOGIN, or the user may not become this
    /// role. The client gets the same reply in all of these cases.
    WrongPassword,
    /// The client sent a password unencrypted across a network, which `pgcache.resp_cleartext` does not allow; see
    /// [`Peer::hides_words`].
    Cleartext,
    /// No line of pg_hba.conf matches, or the matching line has the method `reject`.
    Denied,
    /// The line requires a certificate, and the client presented none.
    NeedsCertificate,
    /// The line requires a method that the Redis protocol does not support, such as gss or ldap.
    Unsupported,
    /// The role lacks CONNECT, or the database accepts no connections.
    NoConnect,
    /// The process has not been able to read pg_hba.conf since it started.
    NoRules,
}

impl AuthFailure {
    /// Returns the error message for the client.
    pub fn words(self) -> &'static str {
        match self {
            AuthFailure::NeedsPassword => "NOAUTH Authentication required.",
            AuthFailure::WrongPassword => {
                "WRONGPASS invalid username-password pair or user is disabled."
            }
            AuthFailure::Cleartext => {
                "DENIED the password would cross the network unencrypted: use TLS, or set pgcache.resp_cleartext"
            }
            AuthFailure::Denied => {
                "DENIED pg_hba.conf does not allow this role to connect from here"
            }
            AuthFailure::NeedsCertificate => "DENIED pg_hba.conf requires a client certificate",
            AuthFailure::Unsupported => {
                "DENIED pg_hba.conf requires an authentication method that is not supported here"
            }
            AuthFailure::NoConnect => "DENIED this role may not connect to the database",
            AuthFailure::NoRules => "DENIED pg_hba.conf could not be read",
        }
    }
}

impl Peer {
    /// Returns whether the client's bytes cross no network unencrypted, because the client uses a unix socket, TLS or
    /// the loopback interface.
    pub fn hides_words(&self) -> bool {
        match self.address {
            PeerAddress::Unix { .. } => true,
            PeerAddress::Tcp(address) => self.tls || address.ip().to_canonical().is_loopback(),
        }
    }
}

/// Reads pg_hba.conf and pg_ident.conf. An executor calls this when it starts and at SIGHUP.
pub fn reload() {
    hba::reload();
}

/// Checks whether a client may log in as the role `user`. Must run within a transaction.
pub fn authenticate(
    user: &[u8],
    password: Option<&[u8]>,
    peer: &Peer,
    certificate: Option<&Certificate>,
) -> Result<Authenticated, AuthFailure> {
    let rules = hba::rules().ok_or(AuthFailure::NoRules)?;
    if login::names_are_per_database() {
        return Err(AuthFailure::Unsupported);
    }
    let user = user.get(..LONGEST_NAME).unwrap_or(user);
    let user = CString::new(user).map_err(|_| AuthFailure::WrongPassword)?;
    let database = login::served().ok_or(AuthFailure::NoConnect)?;
    let log_in = Login::new(&user, &database.name, peer);
    let line = log_in.line(&rules.lines);
    let by_password = satisfies(&log_in, line, password, certificate, &rules)
        .and_then(|by_password| admits(&log_in, &database).map(|()| by_password));
    match by_password {
        Ok(by_password) => Ok(admitted(log_in.role, by_password, &database)),
        Err(failure) => {
            if failure != AuthFailure::NeedsPassword {
                log(&log_in, line, failure);
            }
            Err(failure)
        }
    }
}

/// Checks that the client meets the requirements of the line. Returns whether the client did so with a password.
fn satisfies(
    log_in: &Login,
    line: Option<&Line>,
    password: Option<&[u8]>,
    certificate: Option<&Certificate>,
    rules: &hba::Rules,
) -> Result<bool, AuthFailure> {
    let line = line.ok_or(AuthFailure::Denied)?;
    // As in Postgres, a missing certificate is an error before the method is checked; the name in the certificate is
    // checked after the method.
    if line.certificate != ShownCertificate::NotRequired && certificate.is_none() {
        return Err(AuthFailure::NeedsCertificate);
    }
    let by_password = satisfies_method(log_in, line, password, rules)?;
    match names_role(log_in, line, certificate, rules) {
        true => Ok(by_password),
        false => Err(AuthFailure::WrongPassword),
    }
}

/// Returns whether the certificate that the line requires, if any, names a user that may log in as the role.
fn names_role(
    log_in: &Login,
    line: &Line,
    certificate: Option<&Certificate>,
    rules: &hba::Rules,
) -> bool {
    let name = match (line.certificate, certificate) {
        (ShownCertificate::NotRequired | ShownCertificate::Verified, _) => return true,
        (_, None) => return false,
        (ShownCertificate::CommonName, Some(certificate)) => certificate.common_name.as_bytes(),
        (ShownCertificate::DistinguishedName, Some(certificate)) => {
            certificate.distinguished_name.as_bytes()
        }
    };
    !name.is_empty() && log_in.may_be(name, line.map.as_deref(), &rules.mappings)
}

/// Checks the method of the line. Returns whether the client authenticated with a password.
fn satisfies_method(
    log_in: &Login,
    line: &Line,
    password: Option<&[u8]>,
    rules: &hba::Rules,
) -> Result<bool, AuthFailure> {
    match line.method {
        Method::Reject => Err(AuthFailure::Denied),
        Method::Other => Err(AuthFailure::Unsupported),
        Method::Trust | Method::Certificate => Ok(false),
        Method::Peer => match is_peer(log_in, line, rules) {
            true => Ok(false),
            false => Err(AuthFailure::WrongPassword),
        },
        Method::Password { scram_only } => {
            let password = password.ok_or(AuthFailure::NeedsPassword)?;
            match password::is_right(log_in.role, log_in.user, password, scram_only) {
                true => Ok(true),
                false => Err(AuthFailure::WrongPassword),
            }
        }
    }
}

fn is_peer(log_in: &Login, line: &Line, rules: &hba::Rules) -> bool {
    let PeerAddress::Unix { uid } = log_in.peer.address else {
        return false;
    };
    hba::user_name(uid)
        .is_some_and(|user| log_in.may_be(&user, line.map.as_deref(), &rules.mappings))
}

/// Checks whether the role and the database accept a client that pg_hba.conf admits.
fn admits(log_in: &Login, database: &login::Database) -> Result<(), AuthFailure> {
    if !login::role(log_in.role).is_some_and(|role| role.can_login) {
        return Err(AuthFailure::WrongPassword);
    }
    match database.takes_connections && login::may_connect(log_in.role) {
        true => Ok(()),
        false => Err(AuthFailure::NoConnect),
    }
}

/// Returns the authenticated client with its connection limits. A superuser has no limits.
fn admitted(role: Oid, by_password: bool, database: &login::Database) -> Authenticated {
    let facts = login::role(role);
    let limited = facts.filter(|facts| !facts.is_superuser);
    let left = |limit: Option<u32>, taken: fn(Oid) -> u32| {
        let limit = limited.and(limit)?;
        Some(limit.saturating_sub(taken(role)))
    };
    Authenticated {
        role,
        by_password,
        is_superuser: facts.is_some_and(|facts| facts.is_superuser),
        room_of_role: left(
            facts.and_then(|facts| facts.connections),
            login::sessions_of,
        ),
        room_of_database: left(database.connections, |_| login::sessions()),
    }
}

/// Logs the exact reason of a failure, which the reply to the client does not contain. Omits the name if no such role
/// exists, because it may be a password that was given in the wrong place.
fn log(log_in: &Login, line: Option<&Line>, failure: AuthFailure) {
    let name = match login::role(log_in.role) {
        Some(_) => format!("role \"{}\"", decode(log_in.user.to_bytes())),
        None => "an unknown role".to_owned(),
    };
    let by = match line {
        Some(line) => format!("Line {} of pg_hba.conf applies.", line.number),
        None => "No line of pg_hba.conf matches.".to_owned(),
    };
    let from = match log_in.peer.address {
        PeerAddress::Unix { .. } => "the unix socket".to_owned(),
        PeerAddress::Tcp(address) => address.ip().to_canonical().to_string(),
    };
    let why = match failure {
        AuthFailure::WrongPassword => "the authentication failed",
        other => other.words().trim_start_matches("DENIED "),
    };
    let message = format!("rejected a client of the Redis protocol from {from} as {name}: {why}");
    let code = PgSqlErrorCode::ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION;
    ErrorReport::new(code, printable(message), "pgcache")
        .set_detail(by)
        .report(PgLogLevel::LOG);
}

/// The information with which a network process answers a role's commands on a cache without reading the catalogs.
#[derive(Debug, Clone, Copy)]
pub struct FoundPermission {
    pub relation: Oid,
    pub value_type: ValueType,
    pub storage: Storage,
    /// For a table cache, whether copies of its entries in the hot tier may be read without reading the table.
    pub may_be_hot: bool,
    /// For a table cache, whether a read or a write may run user-defined code.
    pub runs_user_code: bool,
    pub settings: Settings,
    pub privileges: Privileges,
    /// The time until which the role's password is valid. It ends the permission of clients that have authenticated
    /// with the password.
    pub valid_until: Option<Timestamp>,
}

/// Why a role has no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionError {
    /// The role was dropped, or may no longer connect.
    NoRole,
    /// The setting `pgcache.resp_caches` names no cache.
    NoCaches,
    /// The setting names fewer caches than when the client selected its database.
    NoDatabase,
    /// The setting has an empty name for this database.
    NoName,
    /// No relation has this name.
    NoCache,
    /// Citus keeps its entries on shards.
    Distributed,
    /// The relation does not work as a cache.
    NotACache,
    /// The server has no hot tier, where the entries of a memory cache are kept.
    NoTier,
    /// The tier has no room for one more cache.
    NoSlot,
    /// Another session has locked the cache to change it. The network process repeats the request, so no client
    /// receives this error.
    Locked,
}

impl PermissionError {
    /// Returns the error message for the client.
    pub fn words(self) -> &'static str {
        match self {
            PermissionError::NoRole => "NOAUTH this role may no longer connect",
            PermissionError::NoCaches => {
                "ERR pgcache.resp_caches is empty: the server serves no cache"
            }
            PermissionError::NoDatabase => {
                "ERR pgcache.resp_caches no longer names a cache for this database: SELECT another one"
            }
            PermissionError::NoName => {
                "ERR pgcache.resp_caches has an empty name for this database"
            }
            PermissionError::NoCache => {
                "ERR the cache of this database does not exist: see pgcache.resp_caches"
            }
            PermissionError::Distributed => {
                "ERR the cache of this database is distributed by Citus: use SQL, or SELECT another one"
            }
            PermissionError::NotACache => {
                "ERR the relation that pgcache.resp_caches names for this database is not a cache"
            }
            PermissionError::NoTier => "ERR the server has no hot tier: see pgcache.hot_size",
            PermissionError::NoSlot => "ERR the hot tier has no room for one more cache",
            PermissionError::Locked => "ERR the cache of this database is locked",
        }
    }
}

/// Returns the privileges of a role on the cache of this name, and what a network process must know about that cache.
/// Must run within a transaction. Does not wait for a session that has locked the cache; otherwise all other requests,
/// including authentications, would wait until this session or a prepared transaction releases the lock.
pub fn decide(role: Oid, cache: &[u8]) -> Result<FoundPermission, PermissionError> {
    let relation = name::relation_named(Text::new(cache));
    let relation = relation.ok_or(PermissionError::NoCache)?;
    // From here on, all that is read stays valid while the lock is held, and afterwards until an invalidation message
    // arrives.
    let lock = lock::Brief::try_on(relation, lock::Mode::Read);
    let _lock = lock.ok_or(PermissionError::Locked)?;
    let facts = login::role(role).filter(|role| role.can_login);
    let facts = facts.ok_or(PermissionError::NoRole)?;
    if !login::may_connect(role) {
        return Err(PermissionError::NoRole);
    }
    let cache = find(relation).map_err(why_not)?;
    if cache.storage == Storage::Memory {
        TierHandle::of(&cache).map_err(why_not)?;
    } else if let Some(tier) = tier().filter(|_| !session::in_recovery()) {
        // Clients that track keys are notified of changes through the slot. Without a slot, these clients cannot keep
        // values.
        cache.slot_or_new(tier);
    }
    Ok(FoundPermission {
        relation,
        value_type: cache.value_type,
        storage: cache.storage,
        may_be_hot: !cache.row_security && !cache.temporary && cache.key_type.is_text(),
        runs_user_code: cache.runs_user_code(),
        settings: cache.settings,
        privileges: privilege::of_role(relation, role),
        valid_until: facts.valid_until,
    })
}

fn why_not(error: Error) -> PermissionError {
    match error {
        Error::NoSuchRelation(_) => PermissionError::NoCache,
        Error::NoTier => PermissionError::NoTier,
        Error::NoSlot => PermissionError::NoSlot,
        Error::OverShards(_) | Error::Distributed(_) => PermissionError::Distributed,
        _ => PermissionError::NotACache,
    }
}

/// Returns whether a role has this name. Must run within a transaction.
pub fn is_role(name: &[u8]) -> bool {
    let name = name.get(..LONGEST_NAME).unwrap_or(name);
    CString::new(name).is_ok_and(|name| login::role(hba::matching::role_named(&name)).is_some())
}

/// The server privileges of a role, which do not concern entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerPrivileges {
    /// Whether the role may see all clients, as a member of pg_monitor.
    pub monitors: bool,
    /// Whether the role may disconnect clients of other roles, as a member of pg_signal_backend.
    pub signals: bool,
    /// Whether the role owns the served database, or is a superuser.
    pub owns: bool,
    pub is_superuser: bool,
    /// Whether the role was dropped, or may no longer log in.
    pub is_locked_out: bool,
    /// The time until which the role's password is valid. It applies to clients that have authenticated with the
    /// password.
    pub valid_until: Option<Timestamp>,
}

/// Returns the server privileges of a role. Must run within a transaction.
pub fn privileges(role: Oid) -> ServerPrivileges {
    let facts = login::role(role);
    let may_log_in = facts.is_some_and(|facts| facts.can_login) && login::may_connect(role);
    ServerPrivileges {
        is_locked_out: !may_log_in,
        valid_until: facts.and_then(|facts| facts.valid_until),
        monitors: login::has_role(role, login::MONITOR),
        signals: login::has_role(role, login::SIGNAL_BACKEND),
        owns: login::owns_served(role),
        is_superuser: facts.is_some_and(|facts| facts.is_superuser),
    }
}
