//! The first model: the protocol that keeps the hot tier coherent with transactions.
//!
//! The hot tier is a copy of rows in shared memory, and Postgres commits in steps: PRE_COMMIT callbacks, commit record,
//! event e (after which other sessions see the writes), COMMIT callbacks, lock release, acknowledgement to the client.
//! The rules below keep the copy from showing a value that a SELECT would not show. The model runs these steps for a
//! few backends, two keys on one stripe, and one cache. It visits **every** interleaving, and checks these promises:
//!
//! * (a) a READ COMMITTED get returns the last value committed when it began, or a newer one. The promise holds from
//!   event e on, not only from the acknowledgement, so a session that saw any effect of a commit also sees its entries;
//! * (b) a get never returns a value of a transaction that was rolled back or is not yet visible;
//! * (c) a transaction sees its own writes;
//! * (d) under REPEATABLE READ a get equals the SELECT of the same transaction;
//! * (e) when all backends have ended, every pending_writers is 0, each slot has its relation, and every valid entry
//!   equals its row;
//! * (f) in every state, an entry that a get would hit is the committed row;
//! * (g) a fill is refused only if, since its token, its key or its cache was marked, or a mark on its stripe was set
//!   or removed. A mark of another cache that stays set refuses no fill.
//!
//! The protocol is larger than the one that the server runs: the model also covers publishing at COMMIT, and copies
//! under REPEATABLE READ and for transactions that have written elsewhere, which the server does not do.
//!
//! # Words of the model and of the server
//!
//! Some words have another meaning here than in the server and in `docs/internals/coherence.md`:
//!
//! | model | server |
//! |---|---|
//! | `ver` of the stripe | `epoch` of the stripe |
//! | `generation` and `epoch` of the slot | `version` of the slot, one word: all slots take it from one counter |
//! | `pending_writers` of the slot, `cache_pend` of a token | `pending_writers` of the slot |
//! | `proven` of the slot | the opposite of `unproven` |
//! | `marks`, `met` and `others` of the stripe | the table of marks of the partition |
//!
//! The numbers of rules 1 to 4 are those of `coherence.md`. Its rule 5 holds rules 5 and 6 of the table below, so its
//! suspension is 6, its slots are 7, and its PREPARE TRANSACTION is 8.
//!
//! # The rules, and where they are in the code
//!
//! | rule | content | code |
//! |---|---|---|
//! | 1 record | Every changed row's key becomes dirty. DDL, TRUNCATE and too many dirty keys make the whole cache dirty. | `dirty`: `note`, `note_by_trigger`, `overflow`; `row_changes`: `apply_ddl` |
//! | 2 mark | In PRE_COMMIT. A key: remove its entry, mark its hash, `ver++`; if the cache has no slot, look up the slot again after the mark. A whole cache: `pending_writers++`, then `epoch++`; if it has no slot, take the cache's lock and look again. A write that comes later is marked at once. | `end`: `mark_steps`; `tier_access`: `mark_key`, `mark_cache_first`, `mark_cache_second` |
//! | 3 unmark | In COMMIT. A key: publish its value if no other writer has touched the key, `ver++`, remove the mark. A whole cache: `epoch++`, then `pending_writers--`. ABORT publishes nothing, undoes only what was marked, and may run twice. The rollback of a savepoint keeps the dirty keys and withdraws their values. | `end`: `unmark_steps`; `tier_access`: `publish_allowed`, `unmark_key`, `unmark_cache`; `dirty`: `abort_subtransaction` |
//! | 4 miss | Take a token, then a new snapshot, read the row, and fill the tier if the token still holds and the transaction has no XID. | `cache_get`: `finish_lookup`, `read_row`, `finish_fill`; `tier_access`: `fill_allowed` |
//! | 5 own writes | A get of a dirty key does not use the tier, nor does any get in a transaction that holds a writer's lock on the cache. | `cache_get`: `may_hit` |
//! | 6 isolation | Under REPEATABLE READ a get first takes AccessShareLock and keeps it, hits only an entry whose xid its snapshot sees, and fills nothing. | `cache_get`: `start_get`, `may_hit`, `read_row` |
//! | 7 suspension | DISABLE TRIGGER suspends the cache when it marks it. Only a check of the trigger under a newly taken ShareUpdateExclusiveLock ends the suspension. | `tier_access`: `mark_cache_first`; `cache_get`: `slot_step`; `row_changes`: `resume_step` |
//! | 8 slots | Each slot gets a new generation. DROP, and the rollback of CREATE, free it. | `tier_access`: `make_slot`; `end`: `leave_callbacks` |
//!
//! Rule 9 (PREPARE TRANSACTION) has its own model, [`crate::prepared`]. Rule 10 (a deletion of an expired row sets
//! marks like any other deletion) adds no interleavings. SERIALIZABLE bypasses the tier and is not modelled.
//!
//! # Atomic steps
//!
//! A section is code that runs under one partition lock. Each of these is one atomic step: a section, the change of one
//! word of a slot, acquiring a Postgres lock, taking a snapshot, reading a row under its relation lock, event e, and
//! the release of locks. No partition lock protects a slot's words, so they can change during a section. Therefore a
//! section reads them in two steps, in either order (`epochs_first`). A move that only its own backend can notice is
//! merged with the step before it (`moves::settle`).
//!
//! # What the model has added to the rules
//!
//! * A writer that marks without a slot **looks up the slot again** after the mark or the lock
//!   (`KeyChecksForSlotAgain`, `CacheChecksForSlotAgain`); a reader that creates a slot checks the lock afterwards
//!   (`FillProven`). So the writer sees the slot, or the reader sees the lock, and no mark needs a slot.
//! * A publish needs a slot that was verified when the key was marked (`PublishProven`).
//! * An unmark **compares the generation** that it marked (`UnmarkChecksGeneration`): the rollback of a savepoint
//!   releases the lock but leaves the cache dirty, so DROP may free the slot under a mark.
//! * Entries are stamped **from the token** (`StampFromToken`), never from words that are read again.
//! * A slot is **made** under a new ShareUpdateExclusiveLock, too (`SlotMadeUnderLock`); a slot made without it starts
//!   suspended.
//! * A mark of a whole cache raises pending_writers **before** epoch (`CacheMarkPendFirst`).
//!
//! Two checks exist only for **late writes**: `pending_writers == 1`, and the unmark's `ver++`. A late write changes a
//! marked key after the rollback of a savepoint has released the row lock. Without late writes, the rest of the token
//! would suffice.
//!
//! `tests/models/redundant.rs` verifies which checks may be left out: a hot get needs to compare only generation and
//! epoch.

mod cache_get;
pub mod clause;
pub mod configurations;
mod dirty;
mod end;
pub mod model;
mod moves;
mod postgres;
mod promises;
mod row_changes;
mod state;
mod successors;
mod tier_access;
mod trace;

pub use state::Violation;
