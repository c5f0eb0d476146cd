//! What a cache means: keys, deadlines, statements over its table, definitions, expiry.
//!
//! No unsafe code and no pg_sys calls of its own: it goes through `pg`.

pub mod coherence;
pub mod cron;
pub mod deadline;
pub mod declare;
pub mod definition;
pub mod depend;
mod direct;
pub mod entries;
pub mod fetch;
mod home;
pub mod hot;
pub mod key;
mod keys;
pub mod layers;
pub mod lease;
pub mod leases;
pub mod limit;
mod load_token;
pub mod loaders;
mod marks;
pub mod memory;
pub mod pass;
pub mod path;
pub mod registry;
pub mod settings;
pub mod slots;
pub mod space;
pub mod statement;
pub mod sweep;
mod sweeping;
pub mod table;
pub mod trim;
pub mod upkeep;
pub mod verify;
pub mod versions;
pub mod view;
pub mod walk;
pub mod watch;
