//! Parses and checks the key expression that a user passes to `cache_depend`, and converts it back to SQL.
//!
//! The expression must be one scalar expression of type text over the columns of one table. It must not contain a
//! VOLATILE function, or a STABLE function that depends on more than the settings that a dependency stores. Otherwise
//! the key could change without a change of the row. `hooks::dependency_key` evaluates the expression.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::plan::{Paths, Plan};
use crate::error::Error;
use crate::pg::catalog::relation;
use crate::pg::catalog::steady_functions::{Steadiness, steadiness};
use crate::pg::memory::pg_list;
use crate::pg::value::datum::Text;

/// An analysed expression, in the memory of the call.
pub struct Expression {
    node: *mut pg_sys::Node,
    relation: pg_sys::Oid,
    /// Whether the result depends on settings that affect the text form of values.
    pub follows_settings: bool,
}

impl Expression {
    /// Parses `text` as an expression over the columns of `relation`, on which the caller holds a lock.
    pub fn over(relation: pg_sys::Oid, text: Text) -> Result<Expression, Error> {
        let text = text.bytes();
        // Plans this text only so that Postgres raises its own errors, which show the expression.
        let from = relation::qualified(relation);
        let query = [b"SELECT ", text, b"\n FROM ONLY ", from.as_bytes()].concat();
        drop(Plan::prepare(&sql(query), &[], Paths::Any));

        let target = single_target(&sql([b"SELECT ", text].concat()))?;
        // SAFETY: the relation is locked; all nodes live in the memory context of the call.
        let node = unsafe {
            let state = pg_sys::make_parsestate(std::ptr::null_mut());
            let open = pg_sys::table_open(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
            let table = pg_sys::addRangeTableEntryForRelation(
                state,
                open,
                pg_sys::AccessShareLock as i32,
                std::ptr::null_mut(),
                false,
                true,
            );
            pg_sys::addNSItemToQuery(state, table, true, true, true);
            let kind = pg_sys::ParseExprKind::EXPR_KIND_INDEX_EXPRESSION;
            let node = pg_sys::transformExpr(state, target, kind);
            let node_type = pg_sys::exprType(node);
            let text = pg_sys::coerce_to_target_type(
                state,
                node,
                node_type,
                pg_sys::TEXTOID,
                -1,
                pg_sys::CoercionContext::COERCION_IMPLICIT,
                pg_sys::CoercionForm::COERCE_IMPLICIT_CAST,
                -1,
            );
            if text.is_null() {
                return Err(Error::KeyNotText(relation::type_name(node_type)));
            }
            pg_sys::assign_expr_collations(state, text);
            pg_sys::table_close(open, pg_sys::NoLock as pg_sys::LOCKMODE);
            text
        };
        // SAFETY: walks the new nodes, which live in the memory context of the call.
        if unsafe { pg_sys::contain_volatile_functions(node) } {
            return Err(Error::VolatileKey);
        }
        // SAFETY: as for the walk above.
        let follows_settings = match unsafe { steadiness(node) } {
            Steadiness::Steady => false,
            Steadiness::UnderSettings => true,
            Steadiness::Unsteady(what) => return Err(Error::UnsteadyKey(what)),
        };
        Ok(Expression {
            node,
            relation,
            follows_settings,
        })
    }

    /// Returns the expression as SQL, with `prefix.` before each column.
    pub fn print(&self, prefix: &CStr) -> Vec<u8> {
        // SAFETY: the nodes refer to range table entry 1, which is the relation; the result is palloc'd.
        unsafe {
            let context = pg_sys::deparse_context_for(prefix.as_ptr(), self.relation);
            let text = pg_sys::deparse_expression(self.node, context, true, false);
            CStr::from_ptr(text).to_bytes().to_vec()
        }
    }
}

/// Returns the expression of `SELECT expression`. Returns an error if the statement has any other part.
fn single_target(select: &CStr) -> Result<*mut pg_sys::Node, Error> {
    // SAFETY: the parser raises errors for invalid text; nodes are read after their tags.
    unsafe {
        let parsed = pg_sys::raw_parser(select.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        let [raw] = pg_list::pointers::<pg_sys::RawStmt>(parsed)[..] else {
            return Err(Error::NotAnExpression);
        };
        let statement: *mut pg_sys::SelectStmt = (*raw).stmt.cast();
        if (*statement).type_ != pg_sys::NodeTag::T_SelectStmt {
            return Err(Error::NotAnExpression);
        }
        let s = &*statement;
        let plain = s.distinctClause.is_null()
            && s.intoClause.is_null()
            && s.fromClause.is_null()
            && s.whereClause.is_null()
            && s.groupClause.is_null()
            && s.havingClause.is_null()
            && s.windowClause.is_null()
            && s.valuesLists.is_null()
            && s.sortClause.is_null()
            && s.limitOffset.is_null()
            && s.limitCount.is_null()
            && s.lockingClause.is_null()
            && s.withClause.is_null()
            && s.op == pg_sys::SetOperation::SETOP_NONE;
        match pg_list::pointers::<pg_sys::ResTarget>(s.targetList)[..] {
            [target] if plain && (*target).name.is_null() => Ok((*target).val),
            _ => Err(Error::NotAnExpression),
        }
    }
}

fn sql(text: Vec<u8>) -> CString {
    CString::new(text).unwrap_or_default()
}
