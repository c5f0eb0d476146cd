//! Who a client is, and what it may do.
//!
//! Both questions are asked in an executor, inside of a transaction: they look into catalogs, and the
//! first may take some milliseconds. The answers are plain data, for the network process that asked.
//!
//! Guards that pg_hba.conf decides as for a session of Postgres, in the same order: its first line
//! that matches, then what that line asks for, then LOGIN, CONNECT and the limits of connections.
//! And that a client hears nothing of the reason that a wrong guess would not hear, too.

pub mod target;

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

/// Postgres' longest name; a longer one is cut, as a session's is.
const LONGEST_NAME: usize = 63;

/// A client that may come in.
#[derive(Debug, Clone, Copy)]
pub struct Authenticated {
    pub role: Oid,
    /// It came by its password, which may cease to count ([`Decision::valid_until`]).
    pub by_password: bool,
    pub is_superuser: bool,
    /// How many clients of the role the door may have, this one among them: what CONNECTION LIMIT
    /// leaves beside the sessions of Postgres. None: as many as there are.
    pub room_of_role: Option<u32>,
    /// The same of the database, for all roles together.
    pub room_of_database: Option<u32>,
}

/// Why a client may not come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFailure {
    /// It has shown nothing, and would have to.
    NeedsPassword,
    /// Wrong, unknown, without LOGIN, past its time, a user that may not be this role: not told apart.
    WrongPassword,
    /// The password would have passed the network as it is: see [`Peer::hides_words`].
    Cleartext,
    /// pg_hba.conf has no line for it, or one that rejects.
    Denied,
    /// The line asks for a certificate, and the client has shown none.
    NeedsCertificate,
    /// The line asks for what the door cannot ask for: gss, ldap.
    Unsupported,
    /// The role lacks CONNECT, or the database takes no connections.
    NoConnect,
    /// pg_hba.conf could not be read since the process began.
    NoRules,
}

impl AuthFailure {
    /// What the client is told.
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
    /// Whether nobody on a network hears what the client says.
    pub fn hides_words(&self) -> bool {
        match self.address {
            PeerAddress::Unix { .. } => true,
            PeerAddress::Tcp(address) => self.tls || address.ip().to_canonical().is_loopback(),
        }
    }
}

/// Reads pg_hba.conf and pg_ident.conf; when an executor begins, and at SIGHUP.
pub fn reload() {
    hba::reload();
}

/// Whether a client may come in as `user`. Inside of a transaction.
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

/// Whether the client shows what the line asks for; gives whether that was a password.
fn satisfies(
    log_in: &Login,
    line: Option<&Line>,
    password: Option<&[u8]>,
    certificate: Option<&Certificate>,
    rules: &hba::Rules,
) -> Result<bool, AuthFailure> {
    let line = line.ok_or(AuthFailure::Denied)?;
    // As in Postgres, a certificate is missed first, and whom it names is asked last.
    if line.certificate != ShownCertificate::NotAsked && certificate.is_none() {
        return Err(AuthFailure::NeedsCertificate);
    }
    let by_password = satisfies_method(log_in, line, password, rules)?;
    match names_role(log_in, line, certificate, rules) {
        true => Ok(by_password),
        false => Err(AuthFailure::WrongPassword),
    }
}

/// Whether the certificate that the line asks for is of somebody who may be the role.
fn names_role(
    log_in: &Login,
    line: &Line,
    certificate: Option<&Certificate>,
    rules: &hba::Rules,
) -> bool {
    let name = match (line.certificate, certificate) {
        (ShownCertificate::NotAsked | ShownCertificate::Verified, _) => return true,
        (_, None) => return false,
        (ShownCertificate::CommonName, Some(certificate)) => certificate.common_name.as_bytes(),
        (ShownCertificate::DistinguishedName, Some(certificate)) => {
            certificate.distinguished_name.as_bytes()
        }
    };
    !name.is_empty() && log_in.may_be(name, line.map.as_deref(), &rules.mappings)
}

/// The same of the line's method alone.
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

/// Whether role and database take the client whom pg_hba.conf lets in.
fn admits(log_in: &Login, database: &login::Database) -> Result<(), AuthFailure> {
    if !login::role(log_in.role).is_some_and(|role| role.can_login) {
        return Err(AuthFailure::WrongPassword);
    }
    match database.takes_connections && login::may_connect(log_in.role) {
        true => Ok(()),
        false => Err(AuthFailure::NoConnect),
    }
}

/// No limit is one to a superuser.
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

/// Says in the log what the client is not told. The name of a role that is not there stays out of
/// it: a password may stand where the name should.
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

/// What a network process must know to answer a role's commands on a cache without a look into the catalogs.
#[derive(Debug, Clone, Copy)]
pub struct FoundPermission {
    pub relation: Oid,
    pub value_type: ValueType,
    pub storage: Storage,
    /// Of a table: copies of its entries in the hot tier may be read without a look at it.
    pub may_be_hot: bool,
    /// Of a table: whoever reads or writes it may run code that is not ours.
    pub runs_user_code: bool,
    pub settings: Settings,
    pub privileges: Privileges,
    /// Until when the role's password counts, for a client that came by it.
    pub valid_until: Option<Timestamp>,
}

/// Why there is no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionError {
    /// The role is gone, or may not connect any more.
    NoRole,
    /// The setting names no cache at all.
    NoCaches,
    /// It names fewer caches than when the client chose its database.
    NoDatabase,
    /// It names none for this database.
    NoName,
    /// No relation has this name.
    NoCache,
    /// Citus keeps its entries on shards.
    Distributed,
    /// The relation does not work as a cache.
    NotACache,
    /// The server has no hot tier, in which a memory cache's entries are.
    NoTier,
    /// The tier has no room for one more cache.
    NoSlot,
    /// Somebody has the cache locked, to change it. It is asked again, and no client is told.
    Locked,
}

impl PermissionError {
    /// What the client is told.
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

/// What a role may do with the cache of that name, and what the cache is. Inside of a transaction.
/// It does not wait for whoever has the cache locked: all others' questions would wait, too, those
/// of who they are among them, for as long as that session, or a prepared transaction, likes.
pub fn decide(role: Oid, cache: &[u8]) -> Result<FoundPermission, PermissionError> {
    let relation = name::relation_named(Text::new(cache));
    let relation = relation.ok_or(PermissionError::NoCache)?;
    // What is looked up from here on holds as long as the lock does, or a message says otherwise.
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
        // By which clients are told of its changes. Where none is left they keep nothing.
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

/// Whether a role has this name. Inside of a transaction.
pub fn is_role(name: &[u8]) -> bool {
    let name = name.get(..LONGEST_NAME).unwrap_or(name);
    CString::new(name).is_ok_and(|name| login::role(hba::matching::role_named(&name)).is_some())
}

/// What a role may do besides its commands on entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerPrivileges {
    /// See all clients: pg_monitor.
    pub monitors: bool,
    /// End clients of others: pg_signal_backend.
    pub signals: bool,
    /// It owns the database that is served, or is a superuser.
    pub owns: bool,
    pub is_superuser: bool,
    /// It is gone, or may not log in any more.
    pub is_locked_out: bool,
    /// Until when its password counts, for a client that came by it.
    pub valid_until: Option<Timestamp>,
}

/// A role's powers. Inside of a transaction.
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
