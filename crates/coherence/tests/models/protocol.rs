//! Tests the model of the hot tier with every rule in force: no promise may be broken. The tests visit each
//! configuration completely. They check promises (a) to (d) at each read, (e) at each end, and (f) in each state. The
//! promises are those of the list in `hot_tier`.

use pgcache_coherence::hot_tier::model::Model;

use crate::check;

fn holds(mut m: Model) {
    m.checks_each_state = true;
    println!("{}: {} states", m.name, check::holds(&m));
}

/// Checks a model with both orders of reading a slot's words.
fn holds_in_both_orders(m: Model) {
    holds(Model {
        epochs_first: true,
        ..m.clone()
    });
    holds(m);
}

macro_rules! protocol_holds {
    ($($check:ident: $($configuration:ident)*;)*) => { $($(
        #[test]
        fn $configuration() {
            $check(pgcache_coherence::hot_tier::configurations::$configuration());
        }
    )*)* };
}

protocol_holds! {
    holds: sets deletes plain_sql altered savepoint late late_neighbour repeatable_read repeatable_writer;
    holds: first_get table_full set_then_update needs_room needs_room_late other_key other_cache;
    holds: no_place no_place_late;
    holds_in_both_orders: aborts_twice truncate truncate_repeatable overflow late_overflow late_after_overflow;
    holds_in_both_orders: table_full_late drop_create drop_under_mark;
    holds_in_both_orders: suspension restore set_while_suspended suspension_without_slot;
}

#[test]
fn no_configuration_is_forgotten() {
    assert_eq!(pgcache_coherence::hot_tier::configurations::all().len(), 31);
}
