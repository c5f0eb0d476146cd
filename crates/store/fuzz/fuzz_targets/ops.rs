//! Runs operations of the model test that the fuzzer chooses; the first byte of the input chooses the region's shape.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgcache_store::Params;
use pgcache_store::check::store_model::run;
use pgcache_store::check::op::Op;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let params = Params {
        bytes_per_slot: 32 << (first >> 4 & 3),
        ..Params::new(500 << 10, 1 << (first & 3))
    };
    let ops: Vec<Op> = rest
        .chunks_exact(8)
        .map(|chunk| Op::from_bytes(chunk.try_into().unwrap_or_default()))
        .collect();
    run(params, &ops);
});
