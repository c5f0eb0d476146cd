#!/usr/bin/env bash
# `make coverage`: shows which lines of the store its own tests execute, by cargo llvm-cov, for each file; the last line
# is the total.
. "$(dirname "$0")/head.sh"
need coverage
tools=$(scripts/cache-dir.sh)/tools
PATH=$PATH:$tools/bin
# Rust's own tools when rustup brought them, else those of the wheel.
if [ ! -e "$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-cov" ]; then
    LLVM_COV=$(echo "$tools"/lib/python3*/site-packages/llvm/bin/llvm-cov)
    LLVM_PROFDATA=$(echo "$tools"/lib/python3*/site-packages/llvm/bin/llvm-profdata)
    export LLVM_COV LLVM_PROFDATA
fi
# The wheel's tools cannot read compressed names.
export RUSTFLAGS="${RUSTFLAGS:-} -C llvm-args=-enable-name-compression=false"
# Counting slows the model tests down; some optimisation and fewer cases make up for it, assertions stay.
export CARGO_PROFILE_DEV_OPT_LEVEL=2 PROPTEST_CASES=${PROPTEST_CASES:-32}
CARGO_TARGET_DIR=build/coverage nice cargo llvm-cov --locked --package pgcache-store \
    --ignore-filename-regex '(testing|model|_tests|tests/.*)\.rs' --summary-only "$@"
