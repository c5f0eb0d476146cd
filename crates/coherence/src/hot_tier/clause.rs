//! The clauses of the hot tier's protocol. A model can leave out each of them.
//!
//! A checker that finds nothing is convincing only if it also finds a known bug. So a model without one of the clauses
//! in `tests/models/controls.rs` must yield a counterexample. Other clauses cover the clauses in
//! `tests/models/redundant.rs`; that file verifies this by visiting every state.
//!
//! The rules below are those of the table in `hot_tier`.

use super::model::Model;
use crate::clauses::clauses;

clauses! {
    Model:
    // Record (protocol rule 1)
    /// The trigger notes a changed row's key as dirty.
    RowChangeNoted,
    /// TRUNCATE makes the whole cache dirty.
    TruncateNoted,

    // Mark (protocol rule 2)
    /// Marks are set before the commit record; without this clause only COMMIT invalidates.
    MarkBeforeCommit,
    MarkRemovesEntry,
    MarkRaisesPend,
    MarkBumpsVer,
    CacheMarkRaisesPend,
    CacheMarkBumpsEpoch,
    /// A mark of a cache raises `pending_writers` before `epoch`.
    CacheMarkPendFirst,
    /// A write that comes after the transaction's own marks is marked at once.
    LateWriteMarked,
    /// A mark is on the key, not on all keys of its stripe.
    MarksByKey,
    /// A writer that has marked a key without knowing a slot looks up the slot again, and removes copies that readers
    /// stored after the mark.
    KeyChecksForSlotAgain,
    /// A writer whose cache has no slot takes a lock.
    NoSlotTakesLock,
    /// The lock that a writer takes for a cache without a slot belongs to that cache alone.
    LockByCache,
    /// A writer that has taken the lock of its cache looks up the slot again.
    CacheChecksForSlotAgain,

    // Unmark (protocol rule 3)
    /// A set publishes only if no other mark on its key has overlapped with the set's own mark.
    PublishMarkAlone,
    /// Marks and unmarks of other keys on the stripe do not keep a set from publishing.
    PublishByKey,
    /// A writer whose mark finds no room on the stripe still counts as overlapping with the marks on its key.
    NoPlaceMeetsMarks,
    PublishGeneration,
    PublishEpoch,
    PublishCachePend,
    /// A set publishes only if the slot is verified.
    PublishProven,
    /// A set publishes only if the tier was not suspended, either at the mark or now.
    PublishSuspended,
    /// A set publishes only if the row holds exactly the value that was set, unchanged by a user trigger, a rule, a
    /// generated column or row-level security.
    PublishExactValue,
    /// A later note of the key withdraws the value that was to be published.
    NoteDropsValue,
    /// A set that must make room in another partition then checks all conditions of a publish again.
    PublishChecksAgain,
    UnmarkBumpsVer,
    CacheUnmarkBumpsEpoch,
    /// An unmark of a cache raises `epoch` before it lowers `pending_writers`.
    CacheUnmarkEpochFirst,
    /// ABORT unmarks.
    AbortUnmarks,
    /// ABORT publishes nothing.
    AbortPublishesNothing,
    /// ABORT unmarks only marked keys and caches.
    AbortOnlyMarked,
    /// A change is unmarked only once, even if the callbacks run again.
    UnmarkIdempotent,
    /// A slot is unmarked only if it still has the marked generation.
    UnmarkChecksGeneration,
    /// The rollback of a savepoint keeps the dirty keys.
    SubabortKeepsKeys,
    /// The rollback of a savepoint withdraws the values of the dirty keys.
    SubabortDropsValues,
    /// When the dirty keys overflow into a dirty cache, keys that are already marked stay dirty.
    OverflowSparesMarked,

    // Fill (protocol rule 4)
    FillNewSnapshot,
    FillVer,
    /// A fill is refused while the key has a mark.
    FillMark,
    FillGeneration,
    FillEpoch,
    FillCachePend,
    /// A fill is refused while a writer that found no slot holds the cache's lock. The reader checks the lock after the
    /// slot exists.
    FillProven,
    FillSuspended,
    FillWithoutXid,
    /// Entries get the generation and epoch of the token, not the generation and epoch at the time of the store.
    StampFromToken,

    // Own writes (protocol rule 5)
    DirtyKeyBypasses,
    LockedCacheBypasses,

    // Isolation levels (protocol rule 6)
    RepeatableReadChecksXid,
    RepeatableReadKeepsLock,
    RepeatableReadNeverFills,

    // Suspension (protocol rule 7)
    DisableSuspends,
    LookupSuspended,
    /// Turning the tier on reads the trigger's mode under a newly acquired ShareUpdateExclusiveLock.
    ResumeUnderLock,
    /// A slot for a cache without one is created under the same kind of lock.
    SlotMadeUnderLock,

    // An entry's validity, and slots (protocol rule 8)
    LookupGeneration,
    LookupEpoch,
    LookupCachePend,
    /// The rollback of CREATE frees the slot that the transaction created.
    CreateAbortFreesSlot,
    /// DROP frees the slot, so that the next relation with this OID gets another generation.
    DropFreesSlot,
}
