//! Negative controls for the model of the hot tier: each test leaves one clause out, and the checker must find a
//! broken promise. A test is named after the clause that it leaves out.

use pgcache_coherence::hot_tier::clause::Clause;
use pgcache_coherence::hot_tier::configurations as with;
use pgcache_coherence::hot_tier::model::Model;

use crate::check::run_without;

/// The maximum number of steps of a counterexample. A longer one would be too hard to read.
const LONGEST: usize = 40;

fn caught(clause: Clause, m: Model) {
    let run = run_without(&m.without(clause), clause);
    assert!(run.len() <= LONGEST, "{} steps", run.len());
}

fn epochs_first(m: Model) -> Model {
    Model {
        epochs_first: true,
        ..m
    }
}

/// The clauses in `redundant.rs`, each of which can be left out alone without breaking a promise.
const COVERED: &[Clause] = &[
    Clause::PublishGeneration,
    Clause::MarkBumpsVer,
    Clause::UnmarkBumpsVer,
    Clause::PublishSuspended,
    Clause::DirtyKeyBypasses,
    Clause::LookupSuspended,
    Clause::LookupCachePend,
];

caught_without! {
    caught, COVERED;

    // Record (protocol rule 1)
    row_change_noted: RowChangeNoted, with::plain_sql();
    truncate_noted: TruncateNoted, with::truncate_repeatable();

    // Mark (protocol rule 2)
    mark_before_commit: MarkBeforeCommit, with::deletes();
    mark_removes_entry: MarkRemovesEntry, with::deletes();
    mark_raises_pend: MarkRaisesPend, with::deletes();
    cache_mark_raises_pend: CacheMarkRaisesPend, with::overflow();
    cache_mark_bumps_epoch: CacheMarkBumpsEpoch, epochs_first(with::overflow());
    cache_mark_pend_first: CacheMarkPendFirst, epochs_first(with::overflow());
    late_write_marked: LateWriteMarked, with::late_neighbour();
    marks_by_key: MarksByKey, with::other_key();
    key_checks_for_slot_again: KeyChecksForSlotAgain, with::first_get();
    no_slot_takes_lock: NoSlotTakesLock, with::table_full_late();
    lock_by_cache: LockByCache, with::other_cache();
    cache_checks_for_slot_again: CacheChecksForSlotAgain, with::first_get();

    // Unmark (protocol rule 3)
    publish_mark_alone: PublishMarkAlone, with::plain_sql();
    publish_by_key: PublishByKey, with::other_key();
    no_place_meets_marks: NoPlaceMeetsMarks, with::no_place();
    publish_epoch: PublishEpoch, with::overflow();
    publish_cache_pend: PublishCachePend, epochs_first(with::late_after_overflow());
    publish_proven: PublishProven, with::table_full_late();
    publish_exact_value: PublishExactValue, with::altered();
    note_drops_value: NoteDropsValue, with::set_then_update();
    publish_checks_again: PublishChecksAgain, with::needs_room_late();
    cache_unmark_bumps_epoch: CacheUnmarkBumpsEpoch, with::overflow();
    cache_unmark_epoch_first: CacheUnmarkEpochFirst, with::overflow();
    abort_unmarks: AbortUnmarks, with::deletes();
    abort_publishes_nothing: AbortPublishesNothing, with::plain_sql();
    abort_only_marked: AbortOnlyMarked, with::deletes();
    unmark_idempotent: UnmarkIdempotent, with::aborts_twice();
    unmark_checks_generation: UnmarkChecksGeneration, with::drop_under_mark();
    subabort_keeps_keys: SubabortKeepsKeys, with::savepoint();
    subabort_drops_values: SubabortDropsValues, with::savepoint();
    overflow_spares_marked: OverflowSparesMarked, with::late_overflow();

    // Fill (protocol rule 4)
    fill_new_snapshot: FillNewSnapshot, with::deletes();
    fill_ver: FillVer, with::deletes();
    fill_mark: FillMark, with::deletes();
    fill_generation: FillGeneration, with::drop_create();
    fill_epoch: FillEpoch, with::overflow();
    fill_cache_pend: FillCachePend, epochs_first(with::overflow());
    fill_proven: FillProven, with::table_full_late();
    fill_suspended: FillSuspended, epochs_first(with::suspension());
    fill_without_xid: FillWithoutXid, with::plain_sql();
    stamp_from_token: StampFromToken, epochs_first(with::overflow());

    // Own writes and isolation levels (protocol rules 5 and 6)
    locked_cache_bypasses: LockedCacheBypasses, with::plain_sql();
    repeatable_read_checks_xid: RepeatableReadChecksXid, with::repeatable_read();
    repeatable_read_keeps_lock: RepeatableReadKeepsLock, with::truncate_repeatable();
    repeatable_read_never_fills: RepeatableReadNeverFills, with::repeatable_read();

    // Suspension, slots, and an entry's validity (protocol rules 7 and 8)
    disable_suspends: DisableSuspends, with::suspension();
    resume_under_lock: ResumeUnderLock, with::suspension();
    slot_made_under_lock: SlotMadeUnderLock, with::suspension_without_slot();
    lookup_generation: LookupGeneration, with::drop_create();
    lookup_epoch: LookupEpoch, with::overflow();
    create_abort_frees_slot: CreateAbortFreesSlot, with::drop_create();
    drop_frees_slot: DropFreesSlot, with::drop_create();
}
