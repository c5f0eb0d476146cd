//! Checks privileges, ownership and row-level security. Also holds [`AsOwner`], the only code that runs statements as
//! another role.

use std::ffi::CString;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use super::invalidation::KnownPrivilege;
use crate::error::Error;
use crate::pg::catalog::{name, relation, trigger_trust};
use crate::pg::memory::emergency;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::hint;
use crate::pg::{session, version};

/// A set of table privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges(u64);

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const SELECT: Privileges = Privileges(pg_sys::ACL_SELECT as u64);
    pub const INSERT: Privileges = Privileges(pg_sys::ACL_INSERT as u64);
    pub const UPDATE: Privileges = Privileges(pg_sys::ACL_UPDATE as u64);
    pub const DELETE: Privileges = Privileges(pg_sys::ACL_DELETE as u64);
    pub const TRUNCATE: Privileges = Privileges(pg_sys::ACL_TRUNCATE as u64);
    /// Privileges to read entries.
    pub const READ: Privileges = Privileges::SELECT;
    /// Privileges to set entries, or to change their fields.
    pub const WRITE: Privileges = Privileges::SELECT
        .and(Privileges::INSERT)
        .and(Privileges::UPDATE);
    /// Privileges to remove entries and return them.
    pub const TAKE: Privileges = Privileges::SELECT.and(Privileges::DELETE);
    /// Privileges to set entries and to remove entries in one call.
    pub const MOVE: Privileges = Privileges::WRITE.and(Privileges::DELETE);
    /// Privileges to remove all entries.
    pub const CLEAR: Privileges = Privileges::TRUNCATE;

    /// Returns whether this set contains every privilege of `other`.
    pub const fn has(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets.
    pub const fn and(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    /// Returns the privileges as GRANT names them.
    fn words(self) -> String {
        const WORDS: [(Privileges, &str); 5] = [
            (Privileges::SELECT, "SELECT"),
            (Privileges::INSERT, "INSERT"),
            (Privileges::UPDATE, "UPDATE"),
            (Privileges::DELETE, "DELETE"),
            (Privileges::TRUNCATE, "TRUNCATE"),
        ];
        let wanted = WORDS.iter().filter(|(one, _)| self.0 & one.0 != 0);
        wanted.map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }
}

/// Raises 42501 unless the current user has all of these privileges on the relation, and 42P01 if the relation is
/// dropped. The hint contains the GRANT statement only if `is_cache` accepts the relation, so that no hint suggests a
/// grant on a relation that is not a cache.
///
/// A committed REVOKE or a new policy must take effect at once, even in the middle of a transaction. A SELECT processes
/// the invalidation message when it locks the table. A hot read takes no lock, so this function processes the messages
/// itself.
pub fn require(relation: pg_sys::Oid, privileges: Privileges, is_cache: fn(pg_sys::Oid) -> bool) {
    emergency::secure();
    accept_invalidations();
    let known = known(relation, privileges);
    if known.is_known() {
        return;
    }
    if !relation::is_there(relation) {
        ErrorReport::from(Error::NoSuchRelation(relation.to_u32())).report(PgLogLevel::ERROR);
    }
    if !known.learn(|| is_granted(relation, privileges)) {
        refuse(relation, privileges, is_cache(relation));
    }
}

/// Raises 42501. The hint names the role and the relation, which any role may read in the catalogs.
#[cold]
fn refuse(relation: pg_sys::Oid, privileges: Privileges, is_cache: bool) {
    let grant = is_cache.then(|| grant_of(relation, privileges)).flatten();
    denied(pg_sys::AclResult::ACLCHECK_NO_PRIV, relation, grant);
}

/// Raises 42501 with Postgres' own message, and a hint.
fn denied(why: pg_sys::AclResult::Type, relation: pg_sys::Oid, hint: Option<CString>) {
    // SAFETY: syscache lookups inside a transaction; the name is NULL or a palloc'd copy, and the error that is raised
    // copies it.
    let raise = || unsafe {
        pg_sys::aclcheck_error(
            why,
            relation::object_type(relation),
            pg_sys::get_rel_name(relation),
        );
    };
    match hint {
        Some(hint) => hint::on(PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE, &hint, raise),
        None => raise(),
    }
}

/// Returns the statement that grants these privileges to the current user; None if the relation is dropped.
fn grant_of(relation: pg_sys::Oid, privileges: Privileges) -> Option<CString> {
    let (relation, words) = (relation::spelled(relation)?, privileges.words());
    let role = role_name(session::user())?;
    let hint = [
        b"The owner can allow it: GRANT ",
        words.as_bytes(),
        b" ON ",
        relation.to_bytes(),
        b" TO ",
        role.to_bytes(),
        b";",
    ];
    CString::new(hint.concat()).ok()
}

/// Returns a role's quoted name; None if the role is dropped.
fn role_name(role: pg_sys::Oid) -> Option<CString> {
    name::of_role(role).map(|bare| name::quote_identifier(&bare))
}

/// Processes the invalidation messages of committed transactions.
pub fn accept_invalidations() {
    // SAFETY: pgcache calls this only inside a transaction, which the callbacks that may run here need.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}

/// Returns whether the current user has all of these privileges on the relation, as of the messages that the session
/// has processed.
#[inline]
pub fn has(relation: pg_sys::Oid, privileges: Privileges) -> bool {
    let known = known(relation, privileges);
    known.is_known() || known.learn(|| is_granted(relation, privileges))
}

#[inline]
fn known(relation: pg_sys::Oid, privileges: Privileges) -> KnownPrivilege {
    KnownPrivilege {
        relation,
        user: session::user(),
        mask: privileges.0,
    }
}

/// Returns all privileges of a role on an existing relation. Returns the empty set if the role lacks USAGE on the
/// schema, because it could not name the relation in SQL.
pub fn of_role(relation: pg_sys::Oid, role: pg_sys::Oid) -> Privileges {
    let all = pg_sys::AclMaskHow::ACLMASK_ALL;
    // SAFETY: syscache lookups inside a transaction, of an existing relation, whose schema exists too.
    unsafe {
        if !version::may_use_schema(role, pg_sys::get_rel_namespace(relation)) {
            return Privileges::NONE;
        }
        let mask = pg_sys::AclMode::MAX;
        // In Postgres 15 the mask has half as many bits.
        #[allow(clippy::useless_conversion)]
        Privileges(u64::from(pg_sys::pg_class_aclmask(
            relation, role, mask, all,
        )))
    }
}

/// Reads the privileges from the catalogs. Uses pg_class_aclmask, because callers require all of the privileges, while
/// pg_class_aclcheck succeeds if the role has any of them.
fn is_granted(relation: pg_sys::Oid, privileges: Privileges) -> bool {
    let (mask, all) = (
        privileges.0 as pg_sys::AclMode,
        pg_sys::AclMaskHow::ACLMASK_ALL,
    );
    // SAFETY: a syscache lookup inside a transaction, which keeps no pointer.
    unsafe { pg_sys::pg_class_aclmask(relation, session::user(), mask, all) == mask }
}

/// Raises 42501 unless the current user owns the relation.
pub fn require_owner(relation: pg_sys::Oid) {
    accept_invalidations();
    // SAFETY: syscache lookups inside a transaction.
    if !unsafe { version::owns_relation(relation, session::user()) } {
        let owner = role_name(relation::owner(relation));
        let hint = owner.and_then(|owner| {
            let hint: [&[u8]; 3] = [
                b"Only role ",
                owner.to_bytes(),
                b" and its members may do it.",
            ];
            CString::new(hint.concat()).ok()
        });
        denied(pg_sys::AclResult::ACLCHECK_NOT_OWNER, relation, hint);
    }
}

/// Returns whether the current user is a superuser, or may set `pgcache.hot_size` and so divide the hot tier between
/// caches.
pub fn may_reserve() -> bool {
    // SAFETY: a syscache lookup inside a transaction.
    let granted = unsafe {
        pg_sys::pg_parameter_aclcheck(
            c"pgcache.hot_size".as_ptr(),
            session::user(),
            pg_sys::ACL_SET as pg_sys::AclMode,
        )
    };
    granted == pg_sys::AclResult::ACLCHECK_OK || fault::on(Fault::AnyRoleReserves)
}

/// Returns whether row-level security applies to the current user on this relation.
pub fn row_security_applies(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache lookup inside a transaction, which reports no policies for a dropped relation.
    unsafe {
        pg_sys::check_enable_rls(relation, pg_sys::InvalidOid, true)
            == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
    }
}

/// Runs statements as another role for as long as this value lives: as a relation's owner, or with
/// [`AsOwner::of_function`] as a function's owner.
///
/// The relation's owner is needed in two cases. First, Postgres requires SELECT for `DELETE ... WHERE key = $1`, while
/// `cache_delete` promises to require only DELETE. Second, a sweep over all caches must not run their triggers with the
/// sweeper's rights. The caller's own privilege is checked before, and the statement contains no text from the caller.
/// Triggers on the table then run as the owner, as they do when a foreign key cascades, but under a fixed search_path,
/// so that the caller's schemas cannot supply unqualified names. Must not be used if row-level security applies to the
/// caller.
///
/// A role with the TRIGGER privilege may have created a trigger, and that trigger's code would run as the owner. So
/// `trigger_trust` checks the triggers before any row is removed as the owner.
pub struct AsOwner {
    user: pg_sys::Oid,
    context: i32,
    settings: i32,
}

/// The search_path for statements that run as an owner: an unqualified name is found only in pg_catalog or among
/// temporary objects.
const SAFE_PATH: &std::ffi::CStr = c"pg_catalog, pg_temp";

impl AsOwner {
    /// Prepares to remove rows of a relation that the caller has named. If the caller is the owner, the triggers run
    /// unchecked, as in the owner's own DELETE. For other callers, raises 42501 if a trigger may run another role's
    /// code.
    pub fn of(relation: pg_sys::Oid) -> AsOwner {
        if relation::owner(relation) != session::user() {
            trigger_trust::refuse(relation);
        }
        AsOwner::with(relation, 0)
    }

    /// Prepares to remove rows of a table that the caller did not name. The triggers' code can neither change the
    /// session nor defer work to the commit, where the work would run as the caller. Raises 42501 for an untrusted
    /// trigger even if the caller is the owner, because the owner did not request this removal.
    pub fn to_remove(relation: pg_sys::Oid) -> AsOwner {
        trigger_trust::refuse(relation);
        AsOwner::to_maintain(relation)
    }

    /// Prepares to run statements that fire no trigger, under the same restrictions.
    pub fn to_maintain(relation: pg_sys::Oid) -> AsOwner {
        AsOwner::with(relation, pg_sys::SECURITY_RESTRICTED_OPERATION as i32)
    }

    /// Acts as the owner of a function, with the same restrictions, to create a trigger that calls the function. So the
    /// caller does not need EXECUTE on the function; the calling code has checked the caller's rights.
    pub fn of_function(function: pg_sys::Oid, relation: pg_sys::Oid) -> AsOwner {
        let restricted = pg_sys::SECURITY_RESTRICTED_OPERATION as i32;
        AsOwner::become_role(trigger_trust::owner_of(function), relation, restricted)
    }

    fn with(relation: pg_sys::Oid, more: i32) -> AsOwner {
        AsOwner::become_role(relation::owner(relation), relation, more)
    }

    fn become_role(owner: pg_sys::Oid, relation: pg_sys::Oid, more: i32) -> AsOwner {
        let mut former = AsOwner {
            user: pg_sys::InvalidOid,
            context: 0,
            settings: 0,
        };
        // SAFETY: drop restores the former identity and path; after an error the abort does it.
        unsafe {
            former.settings = pg_sys::NewGUCNestLevel();
            pg_sys::set_config_option(
                c"search_path".as_ptr(),
                SAFE_PATH.as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            pg_sys::GetUserIdAndSecContext(&mut former.user, &mut former.context);
            // Set only if necessary, because under this flag statements count as foreign-key queries, to which
            // `pgcache.live()` shows expired rows. Triggers on the table are not foreign-key queries.
            let see_all = match relation::forces_row_security(relation) {
                true => pg_sys::SECURITY_NOFORCE_RLS as i32,
                false => 0,
            };
            let local = pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
            pg_sys::SetUserIdAndSecContext(owner, former.context | local | see_all | more);
        }
        former
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        // An error that unwinds ends in an abort, which restores both.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: the identity and the level of settings that were current in `with`.
        unsafe {
            pg_sys::AtEOXact_GUC(false, self.settings);
            pg_sys::SetUserIdAndSecContext(self.user, self.context);
        }
    }
}
