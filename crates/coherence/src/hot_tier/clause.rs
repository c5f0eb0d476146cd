//! The clauses of the protocol's rules, each of which a model can leave out.
//!
//! A checker that finds nothing proves nothing until it finds a known bug: a model without one of the clauses in
//! `tests/models/controls.rs` must yield a counterexample. `tests/models/redundant.rs` holds the clauses that other
//! clauses cover, with the proof by exhaustion.

use super::model::Model;
use crate::clauses::clauses;

clauses! {
    Model:
    // Rule 1, record
    /// The trigger notes a changed row's key as dirty.
    RowChangeNoted,
    /// TRUNCATE makes the whole cache dirty.
    TruncateNoted,

    // Rule 2, mark
    /// Marks are set before the commit record; without it only COMMIT invalidates.
    MarkBeforeCommit,
    MarkRemovesEntry,
    MarkRaisesPend,
    MarkBumpsVer,
    CacheMarkRaisesPend,
    CacheMarkBumpsEpoch,
    /// pending_writers++ comes before epoch++.
    CacheMarkPendFirst,
    /// A write that comes after our mark is marked at once.
    LateWriteMarked,
    /// A mark is on the key, not on all keys of its stripe.
    MarksByKey,
    /// A writer that has marked a key and knew of no slot looks for it again, and removes copies made meanwhile.
    KeyLooksForSlotAgain,
    /// A writer whose cache has no slot takes a lock.
    NoSlotTakesLock,
    /// It is the cache's own.
    LockByCache,
    /// A writer that has taken it looks for the slot again.
    CacheLooksForSlotAgain,

    // Rule 3, unmark
    /// No other mark on the key has stood together with ours.
    PublishMarkAlone,
    /// Marks and unmarks of other keys on the stripe are no reason to publish nothing.
    PublishByKey,
    /// A mark that finds no place still counts as one that has stood together with those of its key.
    NoPlaceMeetsMarks,
    PublishGeneration,
    PublishEpoch,
    PublishCachePend,
    /// The slot is proven.
    PublishProven,
    /// Nor was the tier off.
    PublishSuspended,
    /// Only what the row holds: no user trigger, rule, generated column, row-level security.
    PublishExactValue,
    /// A later note of the key drops the value.
    NoteDropsValue,
    /// Where room must be made in another partition, all is asked again.
    PublishAsksAgain,
    UnmarkBumpsVer,
    CacheUnmarkBumpsEpoch,
    /// epoch++ comes before pending_writers--.
    CacheUnmarkEpochFirst,
    /// ABORT unmarks.
    AbortUnmarks,
    /// ABORT does not publish.
    AbortPublishesNothing,
    /// ABORT unmarks only what was marked.
    AbortOnlyMarked,
    /// A change that is unmarked is not unmarked again when the callbacks run again.
    UnmarkIdempotent,
    /// A slot is unmarked only while it has the generation that was marked.
    UnmarkChecksGeneration,
    /// Subtransaction abort keeps the keys.
    SubabortKeepsKeys,
    /// Subtransaction abort drops their values.
    SubabortDropsValues,
    /// When the dirty keys overflow into a dirty cache, those that are already marked stay.
    OverflowSparesMarked,

    // Rule 4, fill
    FillNewSnapshot,
    FillVer,
    /// No writer marks the key.
    FillMark,
    FillGeneration,
    FillEpoch,
    FillCachePend,
    /// No writer that found no slot marks the cache; checked once the slot exists.
    FillProven,
    FillSuspended,
    FillWithoutXid,
    /// Entries carry the generation and epoch of the token, not those found when they are made.
    StampFromToken,

    // Rule 5, own writes
    DirtyKeyBypasses,
    LockedCacheBypasses,

    // Rule 6, isolation levels
    RepeatableReadChecksXid,
    RepeatableReadKeepsLock,
    RepeatableReadNeverFills,

    // Rule 7, suspension
    DisableSuspends,
    LookupSuspended,
    /// Turning the tier on reads the trigger's mode under a newly acquired ShareUpdateExclusiveLock.
    ResumeUnderLock,
    /// So does the making of a slot for a cache that has none.
    SlotMadeUnderLock,

    // An entry's validity, and rule 8
    LookupGeneration,
    LookupEpoch,
    LookupCachePend,
    /// A slot whose creating transaction rolls back is freed.
    CreateAbortFreesSlot,
    /// DROP frees the slot: the next relation of this OID gets another generation.
    DropFreesSlot,
}
