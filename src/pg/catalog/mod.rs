//! What the catalogs say of relations, privileges and dependencies.

pub mod database;
pub mod dependency_key;
pub mod inheritance;
pub mod lookup;
pub mod name;
pub mod policies;
pub mod privilege;
pub mod relation;
