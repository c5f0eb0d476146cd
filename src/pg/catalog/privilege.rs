//! Who may do what: privileges, ownership, row-level security, and the one place where a statement
//! runs as somebody else.

use pgrx::pg_sys;

use super::relation;
use crate::pg::hooks::invalidation::Grant;
use crate::pg::memory::emergency;
use crate::pg::{session, version};

/// A set of table privileges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Privileges(u64);

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const SELECT: Privileges = Privileges(pg_sys::ACL_SELECT as u64);
    pub const INSERT: Privileges = Privileges(pg_sys::ACL_INSERT as u64);
    pub const UPDATE: Privileges = Privileges(pg_sys::ACL_UPDATE as u64);
    pub const DELETE: Privileges = Privileges(pg_sys::ACL_DELETE as u64);
    pub const TRUNCATE: Privileges = Privileges(pg_sys::ACL_TRUNCATE as u64);

    pub const fn and(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }
}

/// Raises 42501 unless the current user has all of these on the relation, 42P01 if it is gone.
///
/// A REVOKE or a policy that somebody has committed counts from now on, also in the middle of a
/// transaction: a SELECT would hear of it with its lock on the table, and a hot read takes none.
pub fn require(relation: pg_sys::Oid, privileges: Privileges) {
    emergency::secure();
    hear();
    if has(relation, privileges) {
        return;
    }
    // SAFETY: syscache look-ups; they raise errors and keep no pointer.
    unsafe {
        let result = aclcheck(relation, privileges, pg_sys::AclMaskHow::ACLMASK_ALL);
        if result != pg_sys::AclResult::ACLCHECK_OK {
            pg_sys::aclcheck_error(
                result,
                relation::object_type(relation),
                pg_sys::get_rel_name(relation),
            );
        }
    }
}

/// Takes notice of what others have committed.
pub fn hear() {
    // SAFETY: inside a transaction.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}

/// Whether the current user has all of these on the relation, as far as the session has heard.
#[inline]
pub fn has(relation: pg_sys::Oid, privileges: Privileges) -> bool {
    let grant = Grant {
        relation,
        user: session::user(),
        mask: privileges.0,
    };
    grant.is_known()
        || grant.learn(|| {
            // SAFETY: a syscache look-up inside a transaction.
            let result = unsafe { aclcheck(relation, privileges, pg_sys::AclMaskHow::ACLMASK_ALL) };
            result == pg_sys::AclResult::ACLCHECK_OK
        })
}

/// pg_class_aclcheck answers for any of the privileges; this one asks for all.
///
/// # Safety
/// A syscache look-up: a transaction must be open.
unsafe fn aclcheck(
    relation: pg_sys::Oid,
    privileges: Privileges,
    how: pg_sys::AclMaskHow::Type,
) -> pg_sys::AclResult::Type {
    // SAFETY: the caller's transaction is open.
    unsafe {
        let mask = privileges.0 as pg_sys::AclMode;
        let granted = pg_sys::pg_class_aclmask(relation, session::user(), mask, how);
        match granted == mask {
            true => pg_sys::AclResult::ACLCHECK_OK,
            false => pg_sys::AclResult::ACLCHECK_NO_PRIV,
        }
    }
}

/// Raises 42501 unless the current user owns the relation.
pub fn require_owner(relation: pg_sys::Oid) {
    hear();
    // SAFETY: syscache look-ups, as above.
    unsafe {
        if !version::owns_relation(relation, session::user()) {
            pg_sys::aclcheck_error(
                pg_sys::AclResult::ACLCHECK_NOT_OWNER,
                relation::object_type(relation),
                pg_sys::get_rel_name(relation),
            );
        }
    }
}

/// The role that owns the relation.
pub fn owner(relation: pg_sys::Oid) -> pg_sys::Oid {
    relation::owner(relation)
}

/// Whether row-level security applies to the current user on this relation.
pub fn row_security_applies(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up.
    unsafe {
        pg_sys::check_enable_rls(relation, pg_sys::InvalidOid, true)
            == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
    }
}

/// Statements run as the relation's owner as long as this lives.
///
/// For two cases. `DELETE ... WHERE key = $1` needs SELECT by Postgres' rules, while `cache_delete`
/// promises to need DELETE alone; and a sweep over all caches must not run their triggers with the
/// sweeper's rights. The privilege was checked for the caller before; the statement is ours, no text
/// of the caller's; triggers on the table run as the owner then, as they do when a foreign key
/// cascades, but under a search_path that is not the caller's: what they do not qualify must not be
/// found in a schema of his. Never used where row-level security applies to the caller.
pub struct AsOwner {
    user: pg_sys::Oid,
    context: i32,
    settings: i32,
}

/// Where code of an owner finds what it does not qualify: nowhere but in Postgres itself.
const SAFE_PATH: &std::ffi::CStr = c"pg_catalog, pg_temp";

impl AsOwner {
    pub fn of(relation: pg_sys::Oid) -> AsOwner {
        AsOwner::with(relation, 0)
    }

    /// For work on a table that the caller did not name: the owner's code can neither change the
    /// session nor put anything off to the commit, where it would run as the caller.
    pub fn to_maintain(relation: pg_sys::Oid) -> AsOwner {
        AsOwner::with(relation, pg_sys::SECURITY_RESTRICTED_OPERATION as i32)
    }

    fn with(relation: pg_sys::Oid, more: i32) -> AsOwner {
        let owner = relation::owner(relation);
        let mut former = AsOwner {
            user: pg_sys::InvalidOid,
            context: 0,
            settings: 0,
        };
        // SAFETY: the former identity and path are put back by drop; after an error the abort does it.
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
            pg_sys::SetUserIdAndSecContext(
                owner,
                former.context
                    | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32
                    | pg_sys::SECURITY_NOFORCE_RLS as i32
                    | more,
            );
        }
        former
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        // An error that unwinds ends in an abort, which puts both back.
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
