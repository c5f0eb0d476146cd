//! Property tests: random operations on the store and on the model, in regions of several shapes. Both must agree for
//! every order of operations.

use std::vec::Vec;

use super::op::Op;
use super::store_model::run;
use crate::Params;
use proptest::prelude::*;

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(any::<[u8; 8]>().prop_map(Op::from_bytes), 1..most)
}

fn narrow(ops: &[Op], keys: u16) -> Vec<Op> {
    let fold = |key: u16| key % keys;
    let narrowed = |op: &Op| match *op {
        Op::Set { key, size, ttl } => Op::Set {
            key: fold(key),
            size,
            ttl,
        },
        Op::Get { key } => Op::Get { key: fold(key) },
        Op::Remove { key } => Op::Remove { key: fold(key) },
        Op::Touch { key, ttl } => Op::Touch {
            key: fold(key),
            ttl,
        },
        Op::Swap { key, size } => Op::Swap {
            key: fold(key),
            size,
        },
        Op::Mark { key } => Op::Mark { key: fold(key) },
        Op::MarkToRenew { key } => Op::MarkToRenew { key: fold(key) },
        Op::Renew { key } => Op::Renew { key: fold(key) },
        other => other,
    };
    ops.iter().map(narrowed).collect()
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 1 } else { 200 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn store_agrees_with_the_model_when_space_is_short(
        ops in ops(if cfg!(miri) { 25 } else { 900 }),
        partitions in 0u32..3,
        slots in 16u32..400,
        keys in 20u16..3000,
    ) {
        let params = Params { bytes_per_slot: slots, ..Params::new(if cfg!(miri) { 250 } else { 500 } << 10, 1 << partitions) };
        run(params, &narrow(&ops, keys));
    }

    #[test]
    fn store_loses_nothing_when_there_is_room(ops in ops(if cfg!(miri) { 25 } else { 200 })) {
        let evicts = |op: &Op| matches!(op, Op::Reclaim { .. } | Op::Vacate { .. } | Op::Expire { .. });
        let ops: Vec<Op> = narrow(&ops, 40).into_iter().filter(|op| !evicts(op)).collect();
        run(Params::new(if cfg!(miri) { 1 } else { 24 } << 20, 4), &ops);
    }
}

#[test]
fn store_agrees_with_the_model_over_a_long_run() {
    let mut state = 42;
    let mut next = || {
        state = super::testing::mix(state);
        Op::from_bytes(state.to_le_bytes())
    };
    let count = if cfg!(miri) { 60 } else { 60_000 };
    let ops: Vec<Op> = (0..count).map(|_| next()).collect();
    run(
        Params::new(if cfg!(miri) { 250 } else { 700 } << 10, 4),
        &narrow(&ops, 900),
    );
}
