//! Installs the hooks that Postgres calls when it plans a statement, and when the planner builds a relation of the
//! statement.

use std::ffi::{c_char, c_int};

use pgrx::pg_sys;

#[cfg(feature = "pg19")]
use pg_sys::{
    build_simple_rel_hook as relation_hook, build_simple_rel_hook_type as relation_hook_type,
};
#[cfg(not(feature = "pg19"))]
use pg_sys::{
    get_relation_info_hook as relation_hook, get_relation_info_hook_type as relation_hook_type,
};

/// A function that receives a relation of a query, with its OID, while the planner builds it.
pub type LookAtRelation = unsafe fn(*mut pg_sys::PlannerInfo, pg_sys::Oid, *mut pg_sys::RelOptInfo);

/// A function that plans a statement, by calling [`Planning::go_on`] at the end.
pub type Plan = unsafe fn(Planning) -> *mut pg_sys::PlannedStmt;

static mut FORMER_RELATION_HOOK: relation_hook_type = None;
static mut LOOK: Option<LookAtRelation> = None;
static mut FORMER_PLANNER_HOOK: pg_sys::planner_hook_type = None;
static mut PLAN: Option<Plan> = None;

/// Calls `look` for each relation that the planner builds, before the planner copies its parent's conditions to it.
///
/// # Safety
/// The caller calls this once, while the library is loaded. `look` receives the planner's own objects and may raise
/// only under its own guard.
pub unsafe fn on_each_relation(look: LookAtRelation) {
    // SAFETY: no other thread reads the variables; the functions live as long as the process.
    unsafe {
        LOOK = Some(look);
        FORMER_RELATION_HOOK = relation_hook;
        relation_hook = Some(at_relation);
    }
}

#[cfg(not(feature = "pg19"))]
unsafe extern "C-unwind" fn at_relation(
    root: *mut pg_sys::PlannerInfo,
    relation: pg_sys::Oid,
    inherited: bool,
    rel: *mut pg_sys::RelOptInfo,
) {
    // SAFETY: the arguments are the planner's own and are passed on; no frame here holds anything to drop.
    unsafe {
        if let Some(former) = FORMER_RELATION_HOOK {
            former(root, relation, inherited, rel);
        }
        if let Some(look) = LOOK {
            look(root, relation, rel);
        }
    }
}

/// Calls the hooks for a relation. From Postgres 19 on the planner also calls this for range table entries that are not
/// relations in the catalogs.
#[cfg(feature = "pg19")]
unsafe extern "C-unwind" fn at_relation(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: the arguments are the planner's own and are passed on; no frame here holds anything to drop.
    unsafe {
        if let Some(former) = FORMER_RELATION_HOOK {
            former(root, rel, entry);
        }
        if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
            && let Some(look) = LOOK
        {
            look(root, (*entry).relid, rel);
        }
    }
}

/// A statement that is about to be planned, and its arguments.
#[derive(Clone, Copy)]
pub struct Planning {
    pub query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
    #[cfg(feature = "pg19")]
    explain: *mut pg_sys::ExplainState,
}

impl Planning {
    /// Plans the statement as Postgres would without pgcache.
    ///
    /// # Safety
    /// Called inside `guarded`, or from frames that hold nothing to drop.
    pub unsafe fn go_on(self) -> *mut pg_sys::PlannedStmt {
        unsafe extern "C-unwind" {
            fn standard_planner(
                query: *mut pg_sys::Query,
                text: *const c_char,
                options: c_int,
                parameters: pg_sys::ParamListInfo,
                #[cfg(feature = "pg19")] explain: *mut pg_sys::ExplainState,
            ) -> *mut pg_sys::PlannedStmt;
        }
        // SAFETY: the arguments are the ones that Postgres passed.
        unsafe {
            match FORMER_PLANNER_HOOK {
                Some(former) => former(
                    self.query,
                    self.text,
                    self.options,
                    self.parameters,
                    #[cfg(feature = "pg19")]
                    self.explain,
                ),
                None => standard_planner(
                    self.query,
                    self.text,
                    self.options,
                    self.parameters,
                    #[cfg(feature = "pg19")]
                    self.explain,
                ),
            }
        }
    }
}

/// Calls `plan` for each statement that Postgres plans.
///
/// # Safety
/// The caller calls this once, while the library is loaded. `plan` may raise only under its own guard.
pub unsafe fn on_planning(plan: Plan) {
    // SAFETY: no other thread reads the variables; the functions live as long as the process.
    unsafe {
        PLAN = Some(plan);
        FORMER_PLANNER_HOOK = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(at_planning);
    }
}

unsafe extern "C-unwind" fn at_planning(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
    #[cfg(feature = "pg19")] explain: *mut pg_sys::ExplainState,
) -> *mut pg_sys::PlannedStmt {
    let planning = Planning {
        query,
        text,
        options,
        parameters,
        #[cfg(feature = "pg19")]
        explain,
    };
    // SAFETY: the arguments are Postgres' own and are passed on; no frame here holds anything to drop.
    unsafe {
        match PLAN {
            Some(plan) => plan(planning),
            None => planning.go_on(),
        }
    }
}

/// The third argument of the hook after parse analysis; read-only from Postgres 19 on.
#[cfg(not(feature = "pg19"))]
pub type Jumble = *mut pg_sys::JumbleState;
/// The third argument of the hook after parse analysis; read-only from Postgres 19 on.
#[cfg(feature = "pg19")]
pub type Jumble = *const pg_sys::JumbleState;
