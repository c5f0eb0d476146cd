//! Builds and keeps the plans of statements over a cache's table. Each statement is written for the table's columns
//! and planned at its first use.

use std::rc::Rc;

use pgrx::pg_sys::Oid;

use super::cache::Cache;
use crate::cache::model::dialect::{Dialect, Rows};
use crate::cache::model::statement::{Form, Parameter, Statement};
use crate::pg::spi::plan::Plan;
use crate::pg::value::datum::ValueType;

impl Cache {
    /// Returns the saved plan of a statement over this cache's table. Plans the statement at its first use.
    pub fn plan(&self, statement: Statement) -> Rc<Plan> {
        self.plan_in(statement, Form::Plain)
    }

    /// Returns the saved plan of a statement in the given form. A transaction that may see two versions of a key needs
    /// a special form.
    pub fn plan_in(&self, statement: Statement, form: Form) -> Rc<Plan> {
        if let Some(plan) = self.kept.plans.borrow().get(&(statement, form)) {
            return Rc::clone(plan);
        }
        let sql = statement.sql(self.qualified.as_bytes(), self.dialect(), form);
        let address = (form == Form::Address).then_some(Parameter::Address);
        let types: Vec<Oid> = statement
            .parameters()
            .iter()
            .copied()
            .chain(address)
            .map(|parameter| self.type_of(parameter))
            .collect();
        let plan = Rc::new(Plan::over(self.relation, sql, &types, statement.paths()));
        self.kept
            .plans
            .borrow_mut()
            .insert((statement, form), Rc::clone(&plan));
        plan
    }

    /// Returns the dialect of statements over this cache's table. A memory cache has no table, and no statements.
    pub fn dialect(&self) -> &Dialect {
        self.kept.dialect.get_or_init(|| {
            self.columns
                .as_ref()
                .map_or_else(Dialect::default, |columns| {
                    let rows = match self.partitioned {
                        true => Rows::OfPartitions,
                        false => Rows::Own,
                    };
                    Dialect::of(columns, rows)
                })
        })
    }

    fn type_of(&self, parameter: Parameter) -> Oid {
        match parameter {
            Parameter::Key => ValueType::Text.oid(),
            Parameter::Keys => ValueType::Text.array_oid(),
            Parameter::Value => self.value_type.oid(),
            Parameter::Values => self.value_type.array_oid(),
            Parameter::Deadline => pgrx::pg_sys::TIMESTAMPTZOID,
            Parameter::Number => pgrx::pg_sys::INT8OID,
            Parameter::Address => pgrx::pg_sys::TIDOID,
        }
    }
}
