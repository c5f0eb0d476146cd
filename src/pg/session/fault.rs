//! Deliberate faults, which show that the tests can fail. Each fault leaves out one step of the protocol that keeps a
//! cache correct, and names a test that must then fail. `make power` sets one fault after the other and runs its test.
//!
//! The faults exist only with the cargo feature `pauses`; without the feature, [`on`] is false at compile time and the
//! library contains no fault. The setting `pgcache.fault` names one fault for the whole server. Each process reads the
//! setting when it starts.

/// Creates the enum of the faults. Each fault names the session test that must fail while the fault is set.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident => $test:literal,)*) => {
        /// A step that is left out.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        /// The names of the faults, in the order of the enum.
        #[cfg(feature = "pauses")]
        const NAMES: &[&str] = &[$(stringify!($fault),)*];
    };
}

faults! {
    // Notes: the changes of a transaction
    /// The trigger of a cache does not note the row that a statement changes.
    RowNotNoted => "coherence_statements::after_any_statement_function_and_select_agree",
    /// A write that bypasses the executor does not note its key.
    DirectWriteNotNoted => "coherence_limits::more_caches_than_slots_stay_right",
    /// A batch does not read again the rows that it could not copy because of concurrent commits.
    BatchNotRefilled => "fair_caches::repeated_writes_affect_no_other_cache",
    /// A dependency's key is evaluated under the settings of the session that changes the row.
    KeyUnderWritersSettings => "depend_settings::a_key_does_not_follow_the_writers_settings",
    /// The text of an attached table's former DEFAULT depends on the session's settings.
    FormerDefaultUnderSessionsSettings => "depend_settings::a_former_default_comes_back_as_it_was",
    /// cache_fetch stores a value that a parallel worker loads.
    ParallelWorkerStores => "fetch_truth::a_parallel_worker_stores_nothing",
    /// Statements of pgcache may be compiled.
    OwnStatementsCompiled => "small_things::no_statement_of_pgcache_is_compiled",
    /// A terminated process acknowledges a commit that was waiting for a standby.
    EndedWaitAcknowledged => "resp_table_standby::a_waiting_process_may_be_ended_and_commands_behind_it_run",
    /// TRUNCATE does not note the cache.
    TruncateNotNoted => "coherence_apply::rows_applied_by_logical_replication_are_seen",
    /// A changed definition or trigger does not note the cache.
    DefinitionNotNoted => "coherence_windows::a_get_beside_a_commit_that_disables_triggers_lifts_no_suspension",
    /// A write that comes after its transaction has set its marks gets no mark.
    LateWriteNotMarked => "coherence_writer::writes_before_the_commit_are_seen",
    /// The rollback of a savepoint drops all noted keys.
    SavepointForgetsNotes => "coherence_statements::after_any_statement_function_and_select_agree",

    /// A noted change of the definition also counts as a note of the rows that the same transaction changes.
    DefinitionCoversRows => "marks_at_limits::a_row_that_changes_beside_the_definition_is_marked_without_a_slot",

    /// A commit does not wait for an EXEC that watches one of the commit's keys and has found no entry under it.
    WatchedAbsentNotHeld => "resp_exec_tables::a_watched_key_without_an_entry_gets_none_before_the_commit",

    // Touches that write nothing
    /// A touch does not write a deadline that would shorten the life of an entry.
    ShorterTouchLeft => "touch_after::a_touch_that_shortens_a_life_is_written",
    /// A touch skips the write of the deadline even if the update would run user-defined code.
    TouchLeavesTriggersOut => "touch_after::user_defined_triggers_rules_and_policies_see_every_touch",

    // Shares of the tier
    /// The slot of a cache does not receive the cache's bound or reserve.
    ShareNotFollowed => "shares::a_neighbours_flood_leaves_reserved_sessions_alone",
    /// A share counts before its transaction commits.
    ShareBeforeCommit => "shares::a_share_counts_from_the_commit_on",
    /// A slot that passes from a dropped cache to another cache keeps the share of the dropped cache.
    NewSlotKeepsShare => "shares::reserves_hold_half_of_the_tier_at_most_and_a_drop_gives_one_back",
    /// Reserves may hold more than half of the tier.
    ReservesUnbounded => "shares::reserves_hold_half_of_the_tier_at_most_and_a_drop_gives_one_back",
    /// Any owner of a cache may reserve a part of the tier for it.
    AnyRoleReserves => "shares::only_roles_with_the_right_reserve",

    // Marks: before the commit record
    /// A session with pgcache.enabled off marks nothing.
    DisabledMarksNothing => "enabled::reloads_at_random_times_leave_no_stale_copy",
    /// Marks are set only after the commit is visible.
    MarkedAfterCommit => "coherence_windows::in_each_window_of_a_change_a_get_fills_nothing_old",
    /// The mark of a key does not remove its copy from the tier.
    MarkKeepsEntry => "coherence_statements::after_any_statement_function_and_select_agree",
    /// The mark of a key removes its copy and is undone at once.
    KeyNotPending => "coherence_windows::in_each_window_of_a_change_a_get_fills_nothing_old",
    /// The mark of a whole cache is undone at once.
    CacheNotPending => "coherence_windows::in_each_window_of_a_change_a_get_fills_nothing_old",
    /// The mark of a whole cache does not change its version, so its copies stay valid.
    CacheKeepsVersion => "coherence_statements::after_any_statement_function_and_select_agree",
    /// If the tier has no room for a key's mark, the whole cache is not marked instead.
    NoPlaceNotPending => "marks_at_limits::a_key_that_finds_no_place_keeps_readers_off_its_cache",
    /// The mark of a whole cache without a slot takes no lock.
    NoSlotNotLocked => "coherence_limits::a_writer_without_a_slot_keeps_loaders_from_storing",
    /// A writer of a cache without a slot does not check again for a slot after its mark.
    SlotNotCheckedAgain => "marks_at_limits::a_slot_that_is_made_while_a_writer_marks_is_found",
    /// The mark of a key does not void its lease.
    MarkVoidsNoLease => "leases::a_committed_change_voids_a_lease_and_a_rolled_back_one_does_not",
    /// The mark of a whole cache does not void its leases.
    CacheVoidsNoLeases => "leases::clearing_and_truncating_void_exactly_the_leases_of_the_cache",
    /// Dependent rows are removed before the marks are set.
    RemovedBeforeMark => "fetch_windows::in_any_window_of_a_change_nothing_old_is_stored",
    /// A deletion that finds no row does not note its key.
    DeletionNotNoted => "fetch_commit::a_lease_that_is_won_while_a_deletion_commits_stores_nothing",
    /// A deletion does not check for the row again after its marks are set.
    DeletionChecksOnce => "delete_wins::a_deletion_wins_over_a_fetch_whose_row_it_cannot_see",
    /// The second check of a deletion by prefix does not wait for rows that are not committed.
    DeletionDoesNotWait => "delete_wins::a_deletion_wins_over_a_fetch_whose_row_it_cannot_see",
    /// A transaction that stores loaded values is not counted.
    StoreNotAnnounced => "delete_wins::a_deletion_wins_over_a_fetch_whose_row_it_cannot_see",
    /// A deletion does not notice stores that begin and end between its two checks.
    StoresBegunNotCounted => "delete_wins::a_deletion_wins_over_a_fetch_that_stores_between_its_checks",

    // Unmarks: after the end of the transaction
    /// Marks are removed before the commit is visible.
    UnmarkedBeforeVisible => "fetch_windows::in_any_window_of_a_change_nothing_old_is_stored",
    /// A rollback after the marks were set does not remove them.
    AbortKeepsMarks => "coherence_limits::a_commit_that_fails_after_its_mark_takes_the_mark_back",
    /// The WAL record of an abort that removes files is not flushed at once.
    AbortNotFlushed => "faults::a_crash_right_after_a_truncation_was_rolled_back_does_not_keep_the_server_down",
    /// A later note of a key does not withdraw the value that an earlier set offers for publication.
    NoteKeepsOffer => "set_keeps::a_set_keeps_the_copy_of_the_entry_it_overwrites",
    /// The rollback of a savepoint does not withdraw the values that its sets offer for publication.
    SavepointKeepsOffers => "set_keeps::a_set_keeps_the_copy_of_the_entry_it_overwrites",
    /// A commit publishes a value although another transaction has marked its key after the commit's own mark.
    PublishMarkNotAlone => "set_keeps::a_set_publishes_nothing_over_a_later_one",

    // Copies: lookups and fills
    /// A lookup serves copies of an earlier version of the cache.
    CopyVersionNotCompared => "coherence_statements::after_any_statement_function_and_select_agree",
    /// The token of a fill is taken after the row is read.
    TokenAfterSnapshot => "coherence_windows::a_change_in_each_window_of_a_get_leaves_no_old_copy",
    /// A fill does not compare the stripe with its token.
    FillEpochNotCompared => "coherence_windows::a_change_in_each_window_of_a_get_leaves_no_old_copy",
    /// A fill uses the present version of the cache instead of the version in its token.
    FillVersionNotCompared => "coherence_windows::a_change_in_each_window_of_a_get_leaves_no_old_copy",
    /// A token is granted, or a copy filled, while a writer of the key is between mark and unmark.
    KeyMarkNotChecked => "coherence_windows::in_each_window_of_a_change_a_get_fills_nothing_old",
    /// A token is granted while a writer of the whole cache is between mark and unmark.
    CachePendingNotChecked => "coherence_windows::in_each_window_of_a_change_a_get_fills_nothing_old",
    /// A transaction that has written still reads and makes copies.
    WriterUsesCopies => "coherence_statements::a_writer_sees_its_own_statement_at_once",
    /// REPEATABLE READ reads and makes copies.
    OldSnapshotUsesCopies => "coherence_sessions::repeatable_read_equals_select_after_other_sessions_change_the_table",
    /// Copies are used although policies hide rows from the reader.
    RowSecurityNotNoticed => "security::row_level_security_hides_entries_that_were_hot_before_it_was_enabled",
    /// A standby makes copies, which no replayed change removes.
    StandbyUsesCopies => "standby::a_standby_misses_unlogged_entries_reads_logged_ones_and_can_be_promoted",
    /// A changed definition does not suspend the copies of its cache.
    NotSuspended => "coherence_windows::a_get_beside_a_commit_that_disables_triggers_lifts_no_suspension",
    /// A suspended cache is filled again without a check of its triggers.
    TriggersNotVerified => "hostile_role::a_trigger_that_no_longer_sees_every_row_ends_the_copies",
    /// The triggers are checked without a lock that waits for the sessions that change them.
    TriggersVerifiedWithoutLock => "coherence_windows::a_get_beside_a_commit_that_disables_triggers_lifts_no_suspension",
    /// A new slot is filled before the triggers of its cache are checked.
    NewSlotNotSuspended => "coherence_limits::a_new_slot_of_a_cache_whose_triggers_are_disabled_is_not_filled",
    /// A copy is served after its deadline.
    ExpiredCopyServed => "coherence_commit::expired_rows_go_with_their_copies",

    // Slots
    /// A new slot is filled although a writer of its cache, which found no slot to mark, has not finished.
    NewSlotNotUnproven => "marks_at_limits::a_slot_that_is_made_while_a_writer_commits_is_not_filled",
    /// A new slot counts as if no entry had ever been removed from it.
    NewSlotForgetsRemovals => "fetch_commit::a_fetch_under_an_old_snapshot_stores_nothing_that_was_removed_since",
    /// A dropped cache keeps its slot and its entries.
    DroppedSlotKept => "memory_definitions::dropping_it_or_rolling_back_its_creation_frees_all",
    /// A cache whose creation is rolled back keeps its slot.
    CreatedSlotKept => "coherence_limits::creations_that_are_rolled_back_leave_no_slot",
    /// A dropped database keeps the slots of its caches.
    DatabaseSlotsKept => "coherence_limits::a_dropped_database_leaves_no_slot_and_no_entry",
    /// A memory cache's slot is found by the OID alone, without comparing the cache's id.
    MemoryIdNotCompared => "standby_slots::a_cache_with_the_oid_of_a_dropped_one_has_none_of_its_entries",
    /// A standby keeps the slots of caches whose DROP it has replayed.
    GoneSlotsKept => "standby_slots::caches_that_come_and_go_do_not_use_up_its_slots",
    /// The first session to use a slot after the promotion of a standby keeps entries that depend on a table.
    RecoveredEntriesKept => "promotion::a_promoted_standby_answers_with_nothing_from_before_a_change",
    /// After a promotion, the slot of a table cache also waits for a session to open it, which only sessions of memory
    /// caches do.
    TableSlotToOpen => "promotion::table_caches_are_read_and_written_by_the_protocol_after_a_promotion",

    // Leases and loaded values
    /// A standby stores loaded values in a cache with dependencies.
    StandbyStoresReplayed => "promotion::a_fetch_on_a_standby_stores_nothing_that_a_replayed_change_makes_old",
    /// A lease or token is granted while a writer of the key is between mark and unmark.
    LeaseWhileKeyPends => "fetch_windows::in_any_window_of_a_change_nothing_old_is_stored",
    /// A lease or token is granted while a writer of the whole cache is between mark and unmark.
    LeaseWhileCachePends => "fetch_commit::a_whole_cache_that_is_marked_gives_no_lease",
    /// A lease or token is granted while a writer of a cache without a slot is between mark and unmark.
    LeaseWhileLocked => "coherence_limits::a_writer_without_a_slot_keeps_loaders_from_storing",
    /// A removal skips rows of loaded values that are not committed.
    RemovalDoesNotWait => "fetch_commit::an_old_value_that_is_stored_and_not_committed_goes_with_the_change_of_its_source",
    /// A fetch keeps the row that it has written although its lease was voided.
    LeaseNotCheckedAfterStore => "fetch_windows::a_change_in_any_window_of_a_fetch_leaves_nothing_old",
    /// A fetch without a lease keeps its row although its token no longer holds.
    TokenNotCheckedAfterStore => "fetch_windows::a_change_in_any_window_of_a_fetch_leaves_nothing_old",
    /// A fetch without a lease takes its token after it has loaded.
    LoadTokenAfterLoad => "fetch_windows::a_change_in_any_window_of_a_fetch_leaves_nothing_old",
    /// The mark of a key does not void the watches of sessions that load it without a lease.
    KeyVoidsNoWatch => "fetch_windows::a_change_in_any_window_of_a_fetch_leaves_nothing_old",
    /// The mark of a whole cache does not void its watches.
    CacheVoidsNoWatches => "fetch_commit::a_value_loaded_before_the_source_was_truncated_is_not_stored_after_it",
    /// A fetch under an old snapshot stores the value that it has loaded.
    OldSnapshotStores => "fetch_commit::a_fetch_under_an_old_snapshot_stores_nothing_that_was_removed_since",
    /// After the promotion, a snapshot taken on the standby counts as the latest.
    StandbySnapshotStores => "standby::an_old_snapshot_of_a_standby_stores_nothing",
    /// A lease that was voided during a store is valid again after the rollback.
    VoidLeaseComesBack => "leases::a_store_that_is_rolled_back_after_a_change_gives_no_lease_back",
    /// A lease can be used after its deadline.
    LeaseOutlivesDeadline => "leases::an_expired_lease_is_refused_and_goes_to_the_next",
    /// A fetch that has won the lease does not check for the entry again.
    FetchChecksOnce => "fetch_windows::a_fetch_that_wins_after_another_has_stored_loads_nothing",
    /// A transaction that has written waits for another session's lease.
    WriterWaitsForLease => "fetch::a_transaction_that_has_written_does_not_wait",
    /// A session that holds a lease waits for another lease.
    HolderMayWait => "fetch::two_loaders_that_fetch_the_same_keys_crosswise_do_not_wait",
    /// A transaction that fails keeps its leases.
    LeaseOutlivesError => "fetch::after_a_failed_cancelled_or_terminated_holder_the_next_one_loads",
    /// Without preload, a writer does not wait for the sessions that load its keys.
    LoadersNotKeptOut => "fetch_truth::without_preload_a_commit_waits_only_for_current_loaders_of_the_key",

    // Memory caches
    /// An entry is stored although a fence blocks its key.
    FenceNotKept => "depend::a_key_of_a_memory_cache_is_fenced_until_the_commit_is_visible",
    /// A value is stored under a lease that is void.
    LeasedStoreNotJudged => "leases::clearing_and_truncating_void_exactly_the_leases_of_the_cache",
    /// A command that depends on an entry writes although the entry has changed since the command read it.
    DecisionNotJudged => "memory_caches::counters_lose_nothing",

    // Entries saved at a shutdown
    /// The file of saved entries is not removed by the start that reads it.
    SavedFileKept => "save_memory::the_file_goes_before_it_is_read_and_is_never_read_twice",
    /// A start restores saved entries although the server has run since they were saved.
    SavedStateNotCompared => "save_memory::a_start_without_preload_in_between_leaves_nothing",

    // Prepared transactions
    /// PREPARE TRANSACTION removes the marks.
    PrepareForgetsMarks => "prepared::a_write_that_is_prepared_is_seen_from_its_commit_on_and_never_before",
    /// A record drops marks for which it has no room.
    OverflowDoesNotStand => "prepared::a_key_that_finds_no_room_is_not_copied_either",
    /// A role may take all the room for keys of prepared transactions.
    RoleTakesAllRoom => "fair_caches::prepared_transactions_of_one_role_leave_room_for_keys_of_another",
    /// Marks of one cache for which a record has no room take one item each, instead of one item together.
    WholeMarksNotJoined => "fair_caches::a_transaction_that_changes_many_caches_can_be_prepared",
    /// A DROP that was prepared keeps the slot.
    PreparedDropKeepsSlot => "prepared::caches_that_come_and_go_in_prepared_transactions_use_up_no_slots",
    /// A prepared transaction that has stored loaded values is no longer counted.
    PreparedStoresNotCounted => "prepared::a_value_that_a_prepared_transaction_has_loaded_goes_when_its_source_changes",
    /// PREPARE TRANSACTION does not lock the caches that the transaction has changed.
    NotTouched => "prepared_restart::a_restart_forgets_marks_and_keeps_prepared_caches_out_of_the_tier",
    /// After a restart, a cache is used without a check whether a prepared transaction has changed it.
    RestartProves => "prepared_restart::a_restart_forgets_marks_and_keeps_prepared_caches_out_of_the_tier",
    /// The marks of a decided transaction are not undone.
    RecordNotLowered => "prepared::marks_that_share_a_place_fall_together",
    /// A transaction counts as decided as soon as the commit log contains it.
    DecidedByLog => "coherence_commit::a_prepared_commit_that_waits_for_a_standby_is_marked_until_it_is_visible",

    // Client-side caching
    /// A network process does not note the keys that a tracking client has read.
    ReadNotNoted => "resp_tracking_tables::reads_of_an_executor_are_tracked",
    /// A read of a client with BCAST is not noted, so that a change during the read is sent only before the reply.
    BroadcastReadNotNoted => "resp_tracking_kept::a_change_during_a_read_reaches_a_broadcast_client_after_its_reply",
    /// A client with BCAST whose SELECT and next command arrive together keeps following the former cache.
    MovedNotSettled => "resp_tracking_kept::a_broadcast_client_that_moves_within_a_packet_is_notified",
    /// A client with BCAST is not notified of what it has read in a database that it has left in the same packet.
    UnfollowedReadNotOwed => "resp_tracking_kept::a_broadcast_client_that_moves_within_a_packet_is_notified",
    /// A change of the cache that a client with BCAST has just left or may not read any more is dropped.
    FormerCacheNotOwed => "resp_tracking_kept::a_broadcast_client_is_notified_of_changes_while_it_waits_elsewhere",
    /// When a connection with REDIRECT ends, the target is not notified.
    LostRedirectNotNotified => "resp_tracking_kept::the_target_of_a_lost_connection_is_notified",
    /// The check for clients that track runs before the commit is visible.
    TrackersCheckedTooEarly => "resp_tracking_tables_storm::a_client_that_starts_tracking_before_a_commit_is_visible_is_notified",
    /// Clients receive invalidations for changes that were rolled back.
    RollbackInvalidates => "resp_tracking_tables::a_change_is_sent_by_its_commit_and_not_before",
    /// Clients receive invalidations only after new copies can be made.
    InvalidatedAfterUnmark => "resp_tracking_tables_storm::in_each_window_of_a_commit_no_new_value_precedes_its_message",
    /// Clients receive invalidations before the commit is visible, and not after it.
    InvalidatedBeforeVisible => "resp_tracking_tables_storm::in_each_window_of_a_commit_no_new_value_precedes_its_message",
    /// An executor replies with rows whose writer has not published its invalidations.
    BackDoesNotWait => "resp_tracking_tables_storm::in_each_window_of_a_commit_no_new_value_precedes_its_message",
    /// Replies are sent before the invalidations for earlier changes.
    NotDrainedBeforeReply => "resp_tracking::no_reply_is_newer_than_an_unsent_change",
    /// A key invalidated during a read is not invalidated again after its reply.
    NotInvalidatedAgain => "resp_tracking_tables::a_key_sent_during_a_read_is_sent_again",
    /// A network process that has lost records of the ring does not invalidate everything.
    LostInvalidatesNothing => "resp_tracking::a_network_process_that_was_overtaken_invalidates_everything",
    /// Clients receive invalidations for changes rolled back to a savepoint.
    SavepointInvalidates => "resp_tracking_tables::changes_undone_by_a_savepoint_are_not_sent",
    /// The record of a decided prepared transaction causes no invalidations.
    RecordInvalidatesNothing => "resp_tracking_tables::a_prepared_transaction_invalidates_everything_at_its_commit",
    /// Reads of a cache whose changes cannot be followed are not invalidated at once.
    UnfollowedNotOwed => "resp_tracking_tables::while_changes_are_not_noted_each_read_is_invalidated_at_once",

    // The Redis protocol
    /// An executor replies before it commits.
    RepliedBeforeCommit => "resp_table_standby::a_commit_that_waits_for_a_standby_stalls_no_other_client",
    /// A cached permission remains valid after a REVOKE.
    DecisionNeverVoid => "resp_connections::a_revoke_acts_on_the_next_command",
    /// The memory of all clients together is not limited.
    ClientsMemoryUnbounded => "resp_memory::the_client_that_uses_most_is_disconnected_first",
    /// A client stays connected although its role may no longer log in.
    LockedOutStay => "resp_memory::clients_of_a_role_that_may_no_longer_log_in_are_disconnected",
    /// EXEC runs although a watched row has changed.
    WatchNotCompared => "resp_table_batches::an_exec_of_watched_keys_is_done_if_they_are_as_they_were",
    /// EXEC does not lock the rows that it has compared.
    WatchedRowNotLocked => "resp_exec_tables::a_watched_entry_stays_as_it_was_until_the_commit",
    /// A network process that ends keeps the places and pages of the replies that it has taken.
    EndedKeepsPlaces => "resp_table_faults::an_ended_network_process_leaves_no_place_and_no_page_taken",
    /// A client that is lost in the middle of its turn keeps the place of its reply.
    LostClientKeepsPlace => "resp_table_faults::an_ended_network_process_leaves_no_place_and_no_page_taken",
    /// Executors write replies for a network process that has ended.
    EndedGetsReplies => "resp_table_faults::replies_for_an_ended_network_process_hold_up_no_executor",
    /// Only the quick lane is watched for work that no executor takes.
    LanesNotWatched => "resp_table_faults::work_that_the_woken_executor_leaves_wakes_another_one",
    /// An executor that ends, and the watch of its lane, wake no other executor for its work.
    EndedWakesNobody => "resp_table_faults::the_job_for_which_an_ended_executor_was_woken_wakes_another_one",
    /// Session state that a role's code has left stays for the next role.
    NotTidied => "resp_table_roles::a_trigger_leaves_nothing_for_the_next_role",
    /// A message is sent although its transaction is rolled back.
    SentOnRollback => "resp_publish::messages_are_sent_by_the_commit_in_order",

    // Privileges, locks, deadlines
    /// A call does not check its privileges.
    PrivilegeNotChecked => "privilege_matrix::every_function_on_a_table_cache_needs_the_listed_privileges",
    /// A call does not check its privileges again under the lock.
    PrivilegeNotCheckedAgain => "rights_taken_away::a_right_is_gone_for_a_call_that_waits_for_the_cache_meanwhile",
    /// A role with TRIGGER on a table makes it a cache, or changes its settings.
    TriggerOfAnyRole => "user_triggers::only_its_owner_makes_a_table_a_cache_or_says_how",
    /// REPEATABLE READ releases the lock on the cache.
    ReaderKeepsNoLock => "coherence_sessions::repeatable_read_equals_select_after_other_sessions_change_the_table",
    /// Several transactions create caches of one name at once.
    NameNotLocked => "concurrency::caches_can_be_made_and_dropped_by_many_at_once",
    /// Plain SQL sees expired rows.
    ExpiredNotHidden => "hidden::a_row_goes_at_its_deadline_under_every_isolation_level",
    /// A cursor shows expired rows if the session that fetches from it shows them.
    ShownByFetch => "hidden_cursors::a_cursor_of_a_security_definer_function_hides_them_for_any_caller",
    /// COPY writes a row in the same batch as an expired row with the same key.
    CopiedTwiceNotHeld => "copied::copy_of_an_expired_and_a_live_row_of_one_key_does_as_insert",
    /// A sweep removes rows that a subscription writes.
    SubscribedRowsSwept => "subscribed::an_entry_set_again_after_it_expired_reaches_the_subscriber",
    /// The worker does not compact the tier's pages.
    HolesStay => "worker_space::large_values_fit_where_a_trim_has_left_holes",
    /// Watchers are notified of changes rolled back to a savepoint.
    RollbackNotified => "watch::each_change_is_sent_once_in_commit_order_and_none_of_a_rollback",
}

/// Returns whether this fault is on. Always false, because this library was built without the feature.
#[cfg(not(feature = "pauses"))]
#[inline(always)]
pub const fn on(_fault: Fault) -> bool {
    false
}

#[cfg(feature = "pauses")]
pub use chosen::{define, on};

#[cfg(feature = "pauses")]
mod chosen {
    use std::ffi::CString;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

    use super::{Fault, NAMES};

    static SETTING: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
    /// The position of the fault that is on in the list, counted from 1; 0 if no fault is on.
    static CHOSEN: AtomicUsize = AtomicUsize::new(0);

    /// Defines `pgcache.fault` and reads it once. `preloading` means that this process is the postmaster.
    pub fn define(preloading: bool) {
        GucRegistry::define_string_guc(
            c"pgcache.fault",
            c"The one clause of pgcache's protocols that this server leaves out.",
            c"For tests only; this library was built with the feature pauses.",
            &SETTING,
            match preloading {
                true => GucContext::Postmaster,
                false => GucContext::Sighup,
            },
            GucFlags::SUPERUSER_ONLY | GucFlags::NO_SHOW_ALL,
        );
        let given = SETTING.get().unwrap_or_default();
        let number = NAMES
            .iter()
            .position(|name| name.as_bytes() == given.as_bytes());
        CHOSEN.store(number.map_or(0, |number| number + 1), Relaxed);
    }

    /// Returns whether this fault is on.
    #[inline]
    pub fn on(fault: Fault) -> bool {
        CHOSEN.load(Relaxed) == fault as usize + 1
    }
}
