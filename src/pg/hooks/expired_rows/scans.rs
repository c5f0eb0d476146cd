//! Adds the condition that hides expired rows to each scan of a cache, while the planner gathers information about
//! the relation.
//!
//! The condition must not run before row-level security policies, because that could leak rows. It must not keep a
//! query from using indexes either. Postgres evaluates clauses in the order of their security levels, so where this
//! module adds the condition depends on the relation:
//!
//! - a base relation: the condition has the level of the query's own conditions;
//! - a member of an append: the condition goes into the first list of `securityQuals`, beside the first policy and
//!   never before it, because `apply_child_basequals` discards a clause anywhere else;
//! - a partitioned or inherited cache: the condition goes to the parent, whose conditions the planner copies to every
//!   child.

use pgrx::pg_sys::{self, Index, Oid};

use crate::pg::hooks::expired_rows::cached::{Cached, TO_BIGINT, cached, is_own};
use crate::pg::memory::pg_list;
use crate::pg::version;

/// Installs the hook into the planner.
pub fn register() {
    // SAFETY: called once while the library is loaded; code that raises has its own guard.
    unsafe { version::on_each_relation(at_relation) };
}

/// Adds the condition if the relation is a cache. The planner calls this for each relation of a query. For other
/// relations it returns before pgrx's guard, because the guard would cost more than the rest of the function.
///
/// # Safety
/// The arguments are the planner's own.
unsafe fn at_relation(root: *mut pg_sys::PlannerInfo, relation: Oid, rel: *mut pg_sys::RelOptInfo) {
    // SAFETY: the planner has the relation locked; no frame here holds anything to drop.
    unsafe {
        if let Some(found) = cached(relation) {
            pg_sys::panic::pgrx_extern_c_guard(|| hide(root, rel, found));
        }
    }
}

/// # Safety
/// `root` and `rel` are the planner's, which is building `rel`.
unsafe fn hide(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo, found: Cached) {
    // SAFETY: the arrays of the planner have an element for each relation of the query, and for a member of an append
    // an element for its parent, too.
    unsafe {
        let entry = entry_of(root, (*rel).relid);
        if is_own(entry) && !has_replaced(root, (*rel).relid) {
            return;
        }
        match (*rel).reloptkind {
            pg_sys::RelOptKind::RELOPT_BASEREL => hide_on_base(root, rel, found),
            pg_sys::RelOptKind::RELOPT_OTHER_MEMBER_REL
                if !is_decided_above(root, (*rel).relid) =>
            {
                hide_on_member(root, rel, entry, found);
            }
            _ => {}
        }
    }
}

/// # Safety
/// `relid` is the range table index of a relation of the query.
unsafe fn entry_of(root: *mut pg_sys::PlannerInfo, relid: Index) -> *mut pg_sys::RangeTblEntry {
    // SAFETY: the array has an element for each number.
    unsafe { *(*root).simple_rte_array.add(relid as usize) }
}

/// Returns whether the planner has merged another mention of the same table into a table of one of pgcache's own
/// statements.
///
/// From Postgres 19 on the planner removes a needless join of a table with itself from the query's tree, and builds the
/// remaining relations again. If only the removed side had the condition, the condition would be lost.
///
/// # Safety
/// `relid` is the range table index of a relation of the query.
unsafe fn has_replaced(root: *mut pg_sys::PlannerInfo, relid: Index) -> bool {
    // SAFETY: the query that is being planned, with its range table and its tree.
    unsafe {
        let query = (*root).parse;
        let table = (*entry_of(root, relid)).relid;
        let entries = pg_list::pointers::<pg_sys::RangeTblEntry>((*query).rtable);
        (1..).zip(entries).any(|(number, entry)| {
            (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
                && (*entry).relid == table
                && number != (*query).resultRelation
                && !is_own(entry)
                && !stands_in((*query).jointree.cast(), number)
        })
    }
}

/// Returns whether a tree of joins contains the relation with this number.
///
/// # Safety
/// `node` is NULL or a node of a query's tree.
unsafe fn stands_in(node: *mut pg_sys::Node, number: i32) -> bool {
    use pg_sys::NodeTag::{T_FromExpr, T_JoinExpr, T_RangeTblRef};
    if node.is_null() {
        return false;
    }
    // SAFETY: a node has the kind of its tag.
    unsafe {
        match (*node).type_ {
            T_RangeTblRef => (*node.cast::<pg_sys::RangeTblRef>()).rtindex == number,
            T_JoinExpr => {
                let join: *mut pg_sys::JoinExpr = node.cast();
                stands_in((*join).larg, number) || stands_in((*join).rarg, number)
            }
            T_FromExpr => {
                let from: *mut pg_sys::FromExpr = node.cast();
                let below = pg_list::pointers::<pg_sys::Node>((*from).fromlist);
                below.into_iter().any(|node| stands_in(node, number))
            }
            _ => false,
        }
    }
}

/// Returns whether an ancestor of this relation already has the condition, or belongs to one of pgcache's own
/// statements.
///
/// # Safety
/// `relid` is the range table index of a member of an append.
unsafe fn is_decided_above(root: *mut pg_sys::PlannerInfo, relid: Index) -> bool {
    let mut member = relid;
    // SAFETY: each member of an append knows its parent, which is a relation of the query, too; the planner looked up
    // the parent before, so it is locked.
    unsafe {
        loop {
            let above = *(*root).append_rel_array.add(member as usize);
            if above.is_null() {
                return false;
            }
            member = (*above).parent_relid;
            let entry = entry_of(root, member);
            if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
                && (is_own(entry) || cached((*entry).relid).is_some())
            {
                return true;
            }
        }
    }
}

/// # Safety
/// `rel` is a base relation that the planner is building.
unsafe fn hide_on_base(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    found: Cached,
) {
    // SAFETY: the nodes are in the planner's memory, like its own nodes.
    unsafe {
        let level = (*root).qual_security_level;
        let restriction = version::restriction(root, condition((*rel).relid, found), level);
        (*rel).baserestrictinfo = pg_sys::lappend((*rel).baserestrictinfo, restriction.cast());
        (*rel).baserestrict_min_security = (*rel).baserestrict_min_security.min(level);
    }
}

/// # Safety
/// `entry` is the entry of `rel`, a member of an append that the planner is building.
unsafe fn hide_on_member(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    entry: *mut pg_sys::RangeTblEntry,
    found: Cached,
) {
    // SAFETY: `securityQuals` is NULL or a list of lists of clauses. The planner owns the entry, because it plans a
    // copy of a kept query.
    unsafe {
        let clause = condition((*rel).relid, found).cast();
        let levels = (*entry).securityQuals;
        if levels.is_null() {
            let first = pg_sys::lappend(std::ptr::null_mut(), clause);
            (*entry).securityQuals = pg_sys::lappend(std::ptr::null_mut(), first.cast());
            (*root).qual_security_level = (*root).qual_security_level.max(1);
        } else {
            let first = &mut *(*levels).elements;
            first.ptr_value = pg_sys::lappend(first.ptr_value.cast(), clause).cast();
        }
    }
}

/// Makes the condition `pgcache.live(expires_at)`, or `pgcache.live_unix` for a Unix time, on a relation of the query.
///
/// # Safety
/// `relid` is the range table index of the relation that `found` describes, with columns of these types.
unsafe fn condition(relid: Index, found: Cached) -> *mut pg_sys::Expr {
    // SAFETY: nodes in the planner's current memory context; the column exists and has this type.
    unsafe {
        let column = found.deadline.of_row(relid as i32);
        let mut arguments = pg_sys::lappend(std::ptr::null_mut(), column.cast());
        if let Some(per_second) = found.kind.per_second() {
            if found.deadline.kind == pg_sys::INT4OID {
                let wide = call(TO_BIGINT, pg_sys::INT8OID, arguments);
                arguments = pg_sys::lappend(std::ptr::null_mut(), wide.cast());
            }
            let per_second = pg_sys::makeConst(
                pg_sys::INT4OID,
                -1,
                pg_sys::InvalidOid,
                4,
                pg_sys::Datum::from(per_second),
                false,
                true,
            );
            arguments = pg_sys::lappend(arguments, per_second.cast());
        }
        call(found.live, pg_sys::BOOLOID, arguments)
    }
}

/// # Safety
/// `function` takes these arguments and returns the type `gives`.
unsafe fn call(function: Oid, gives: Oid, arguments: *mut pg_sys::List) -> *mut pg_sys::Expr {
    let none = pg_sys::InvalidOid;
    let form = pg_sys::CoercionForm::COERCE_EXPLICIT_CALL;
    // SAFETY: a node in the current memory context.
    unsafe { pg_sys::makeFuncExpr(function, gives, arguments, none, none, form).cast() }
}
