//! [`Target`]: the data for direct access to a table, without Postgres' executor. [`target`] checks whether a table is
//! simple enough for direct access.
//!
//! A direct write must have every effect that a write by Postgres' executor would have. If Postgres' executor would
//! evaluate, check or fire anything besides pgcache's own trigger, pgcache uses the saved plans instead. The check runs
//! when the session loads the relation, and again after each change of the relation.

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum};

use crate::pg::catalog::columns::Columns;
use crate::pg::catalog::{own, policy_trust, relation};
use crate::pg::memory::{pg_list, unguarded};
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::key_type::KeyType;
use crate::pg::value::moment::DeadlineForm;
use crate::pg::version;

/// A table whose rows pgcache can find through the index of its primary key.
#[derive(Clone)]
pub struct Target {
    pub relation: pg_sys::Oid,
    /// The btree index of the primary key, whose only column is the key.
    pub index: pg_sys::Oid,
    /// The type of the key column.
    pub key_type: KeyType,
    /// The collation of the index.
    pub collation: pg_sys::Oid,
    /// The form in which the deadline is stored.
    pub deadline_form: DeadlineForm,
    /// Whether the value column can store NULL, a negative entry.
    pub value_nullable: bool,
    /// The numbers of pgcache's columns, from 1. The columns may be in any order, with dropped columns in between.
    pub key: i16,
    pub value: i16,
    pub deadline: i16,
    /// The number of columns, dropped ones included.
    pub columns: i16,
    /// Columns that the user added.
    pub more: Vec<i16>,
    /// Whether pgcache can read rows without Postgres' executor: values are stored as the functions return them (a
    /// `json` is not), and no column of the cache is virtual. Otherwise the index serves only to find writers of a key.
    pub readable: bool,
    /// Whether pgcache can write rows without Postgres' executor.
    pub writable: bool,
    /// The transaction that created the index, if rows had changed their keys before. A snapshot older than this
    /// transaction may see a row that the index contains only under its newer key.
    made_by: Option<pg_sys::TransactionId>,
}

impl Target {
    /// Returns a key in the form in which the index stores it. `key` is the key's canonical text.
    #[inline(always)]
    pub fn key_datum(&self, key: Text) -> Datum {
        self.key_type.datum(key)
    }

    /// Returns whether the index finds every row that the transaction's snapshots see, by the same rule as the
    /// planner's.
    pub fn is_indexed_for_reads(&self) -> bool {
        // SAFETY: a variable of this process, and a comparison.
        self.made_by.is_none_or(|made| unsafe {
            pg_sys::TransactionIdPrecedes(made, pg_sys::TransactionXmin)
        })
    }

    /// Returns the type of the values, if the table and its index are unchanged since the check; otherwise None.
    ///
    /// # Safety
    /// Called inside `unguarded::guarded`; `table` and `index` are open.
    #[inline(always)]
    pub unsafe fn value_type(
        &self,
        table: pg_sys::Relation,
        index: pg_sys::Relation,
    ) -> Option<ValueType> {
        // SAFETY: by the caller's contract; a column that does not exist, or was dropped, has no type.
        unsafe {
            match self.stands(table, index) {
                true => ValueType::of_datums(unguarded::SPI_gettypeid(
                    (*table).rd_att,
                    i32::from(self.value),
                )),
                false => None,
            }
        }
    }

    /// Returns whether the table and its index are unchanged since the check, apart from the type of the values. A lock
    /// is not enough, because it does not stop the session's own statements: those in a loader, a trigger or a policy
    /// may alter the table after the check. They cannot while the table is open.
    ///
    /// # Safety
    /// The same as for [`Target::value_type`].
    #[inline(always)]
    pub unsafe fn stands(&self, table: pg_sys::Relation, index: pg_sys::Relation) -> bool {
        // SAFETY: an open relation has a descriptor and an open index its form; a column that does not
        // exist, or was dropped, has no type.
        unsafe {
            let descriptor = (*table).rd_att;
            let kind = |column: i16| unguarded::SPI_gettypeid(descriptor, i32::from(column));
            (*descriptor).natts == i32::from(self.columns)
                && kind(self.key) == self.key_type.oid()
                && kind(self.deadline) == self.deadline_form.kind.oid()
                && (*(*index).rd_index).indrelid == self.relation
        }
    }
}

/// Returns the data for direct access to a table; None if the table is not an ordinary table or lacks a primary key.
///
/// # Safety
/// `relation` must be open and locked, and `columns` its columns.
pub unsafe fn target(relation: pg_sys::Relation, columns: &Columns) -> Option<Target> {
    // SAFETY: the relation is open, so its descriptor and class row exist; only numbers are kept.
    unsafe {
        if (*(*relation).rd_rel).relkind != pg_sys::RELKIND_RELATION as i8 {
            return None;
        }
        let oid = (*relation).rd_id;
        let key = columns.key.number;
        let value = columns.value.number;
        let deadline = columns.deadline.number;
        let index = version::primary_key_index(relation);
        if index == pg_sys::InvalidOid {
            return None;
        }
        let ours = [key, value, deadline];
        let descriptor = PgTupleDesc::from_pg_unchecked((*relation).rd_att);
        let is_virtual = |column: &pg_sys::FormData_pg_attribute| {
            ours.contains(&column.attnum) && version::is_virtual(column)
        };
        let readable =
            ValueType::of_datums(columns.value_oid).is_some() && !descriptor.iter().any(is_virtual);
        let more: Vec<i16> = descriptor
            .iter()
            .filter(|column| !column.attisdropped && !ours.contains(&column.attnum))
            .map(|column| column.attnum)
            .collect();
        let writable = readable
            && descriptor.iter().all(|column| is_plain(column, &ours))
            && is_plain_table(relation)
            && only_our_triggers(relation)
            && indexes_are_plain(relation, index);
        Some(Target {
            relation: oid,
            index,
            key_type: columns.key_type,
            collation: columns.key_collation,
            deadline_form: columns.deadline_form,
            value_nullable: columns.value_nullable,
            key,
            value,
            deadline,
            columns: descriptor.len() as i16,
            more,
            readable,
            writable,
            made_by: maker_of(index),
        })
    }
}

/// Returns the transaction that created an index, if the index lacks former keys of some rows; otherwise None.
///
/// # Safety
/// The index exists, and its table is locked.
unsafe fn maker_of(index: pg_sys::Oid) -> Option<pg_sys::TransactionId> {
    // SAFETY: the index is open between open and close, under a lock.
    unsafe {
        let open = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let made = (*(*open).rd_index)
            .indcheckxmin
            .then(|| version::inserted_by((*(*open).rd_indextuple).t_data));
        pg_sys::index_close(open, pg_sys::AccessShareLock as i32);
        made
    }
}

/// Returns whether a column stores written values unchanged. A column that the user added must accept NULL in a new
/// row, so it must have no default, and no domain, which could refuse NULL. A column of pgcache must have no type
/// modifier, because Postgres would truncate or round the value to it. Only the key may have one, because pgcache
/// checks the key's length before.
fn is_plain(column: &pg_sys::FormData_pg_attribute, ours: &[i16; 3]) -> bool {
    if column.attisdropped {
        return true;
    }
    // SAFETY: a syscache lookup inside a transaction, of a type that a column has.
    let is_domain =
        || unsafe { pg_sys::get_typtype(column.atttypid) as u8 == pg_sys::TYPTYPE_DOMAIN };
    column.attgenerated == 0
        && column.attidentity == 0
        && match ours.contains(&column.attnum) {
            true => column.atttypmod < 0 || column.attnum == ours[0],
            false => !column.attnotnull && !column.atthasdef && !is_domain(),
        }
}

/// Returns whether the table is a heap without rules, policies, CHECK constraints, parents or children, and not part of
/// a publication. For a published table, Postgres' executor checks row filters and the replica identity.
///
/// # Safety
/// `relation` must be open and locked.
unsafe fn is_plain_table(relation: pg_sys::Relation) -> bool {
    // SAFETY: the relation is open; the description of its publications is a copy.
    unsafe {
        let class = &*(*relation).rd_rel;
        let constraints = (*(*relation).rd_att).constr;
        let mut published = pg_sys::PublicationDesc::default();
        pg_sys::RelationBuildPublicationDesc(relation, &mut published);
        let actions = published.pubactions;
        class.relam == pg_sys::HEAP_TABLE_AM_OID
            && class.relpersistence != pg_sys::RELPERSISTENCE_TEMP as i8
            && !class.relispartition
            && !class.relhassubclass
            && !class.relhasrules
            && !class.relrowsecurity
            && (constraints.is_null() || (*constraints).num_check == 0)
            && !(actions.pubinsert || actions.pubupdate || actions.pubdelete)
    }
}

/// Returns the OIDs of the table and its indexes if a statement that reads only this table runs no user-defined code,
/// neither during planning (expressions of indexes, constraints and statistics) nor during execution (policies).
/// Otherwise returns an empty list.
///
/// # Safety
/// `relation` must be open and locked.
pub unsafe fn relations_read_alone(relation: pg_sys::Relation) -> Vec<pg_sys::Oid> {
    // SAFETY: the relation is open; both lists are copies.
    unsafe {
        let class = &*(*relation).rd_rel;
        let constraints = (*(*relation).rd_att).constr;
        let descriptor = PgTupleDesc::from_pg_unchecked((*relation).rd_att);
        let alone = class.relkind == pg_sys::RELKIND_RELATION as i8
            && (!class.relrowsecurity || policy_trust::run_nothing_of_users(relation))
            && !class.relhasrules
            && !class.relispartition
            && (constraints.is_null() || (*constraints).num_check == 0)
            && !descriptor.iter().any(version::is_virtual)
            && pg_list::oids(pg_sys::RelationGetStatExtList(relation)).is_empty();
        let mut relations = pg_list::oids(pg_sys::RelationGetIndexList(relation));
        if !alone || relations.iter().any(|&index| evaluates(index)) {
            return Vec::new();
        }
        relations.push((*relation).rd_id);
        relations
    }
}

/// Returns whether an index has an expression or a predicate.
///
/// # Safety
/// The index exists, and its table is locked.
unsafe fn evaluates(index: pg_sys::Oid) -> bool {
    // SAFETY: the index is open between open and close, under a lock.
    unsafe {
        let open = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let evaluates = has_expression(open);
        pg_sys::index_close(open, pg_sys::AccessShareLock as i32);
        evaluates
    }
}

/// # Safety
/// `index` must be open.
unsafe fn has_expression(index: pg_sys::Relation) -> bool {
    let has = |column: u32| {
        // SAFETY: the row of pg_index exists as long as the index is open.
        unsafe {
            !pg_sys::heap_attisnull((*index).rd_indextuple, column as i32, std::ptr::null_mut())
        }
    };
    has(pg_sys::Anum_pg_index_indexprs) || has(pg_sys::Anum_pg_index_indpred)
}

/// Returns whether an update of a row runs no user-defined trigger, rule or policy of the table.
///
/// # Safety
/// `relation` must be open and locked.
pub unsafe fn updates_alone(relation: pg_sys::Relation) -> bool {
    // SAFETY: the relation is open, by the caller's contract, so its class row stays. The code reads the rules, because
    // `relhasrules` may stay set after the last rule was dropped.
    unsafe {
        let row_security = (*(*relation).rd_rel).relrowsecurity;
        !row_security && (*relation).rd_rules.is_null() && only_our_triggers(relation)
    }
}

/// Returns whether every trigger is one of pgcache's, whose effects a direct write also has.
///
/// # Safety
/// `relation` must be open and locked.
unsafe fn only_our_triggers(relation: pg_sys::Relation) -> bool {
    let ours = own::OF_A_CACHE.map(|function| function.oid());
    // SAFETY: the relation is open, by the caller's contract.
    let triggers = unsafe { relation::triggers(relation) };
    triggers
        .iter()
        .all(|trigger| ours.contains(&trigger.tgfoid))
}

/// Returns whether only the primary key's index is unique, and no index evaluates an expression or a predicate.
///
/// # Safety
/// `relation` must be open and locked.
unsafe fn indexes_are_plain(relation: pg_sys::Relation, primary: pg_sys::Oid) -> bool {
    // SAFETY: the list is a copy; each index is open between open and close, under a lock.
    unsafe {
        pg_list::oids(pg_sys::RelationGetIndexList(relation))
            .into_iter()
            .all(|oid| {
                let index = pg_sys::index_open(oid, pg_sys::AccessShareLock as i32);
                let form = &*(*index).rd_index;
                let plain = form.indislive
                    && !form.indisexclusion
                    && form.indisunique == (oid == primary)
                    && !has_expression(index);
                pg_sys::index_close(index, pg_sys::AccessShareLock as i32);
                plain
            })
    }
}
