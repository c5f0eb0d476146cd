//! Reads Postgres' catalogs: relations and their columns, privileges, policies, triggers, functions and databases.

pub mod called_functions;
pub mod catalog_rows;
pub mod columns;
pub mod database;
pub mod distributed;
pub mod inheritance;
pub mod invalidation;
pub mod name;
pub mod own;
pub mod policy_trust;
pub mod privilege;
pub mod relation;
pub mod row_estimate;
pub mod steady_functions;
pub mod subscription;
pub mod trigger_trust;
