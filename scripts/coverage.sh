#!/usr/bin/env bash
# `make coverage`: shows, with cargo llvm-cov, how many lines of each file of the store are executed by the store's
# tests. The last line of the output is the total.
. "$(dirname "$0")/head.sh"
need coverage
tools=$(scripts/cache-dir.sh)/tools
PATH=$PATH:$tools/bin
# Uses Rust's own LLVM tools if rustup has brought them, otherwise those of the Python wheel.
if [ ! -e "$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-cov" ]; then
    LLVM_COV=$(echo "$tools"/lib/python3*/site-packages/llvm/bin/llvm-cov)
    LLVM_PROFDATA=$(echo "$tools"/lib/python3*/site-packages/llvm/bin/llvm-profdata)
    export LLVM_COV LLVM_PROFDATA
fi
# The tools of the wheel cannot read compressed names.
export RUSTFLAGS="${RUSTFLAGS:-} -C llvm-args=-enable-name-compression=false"
# Counting slows the model tests down. Compensate with some optimisation and fewer cases; assertions stay on.
export CARGO_PROFILE_DEV_OPT_LEVEL=2 PROPTEST_CASES=${PROPTEST_CASES:-32}
CARGO_TARGET_DIR=build/coverage nice cargo llvm-cov --locked --package pgcache-store \
    --ignore-filename-regex '(testing|model|_tests|tests/.*)\.rs' --summary-only "$@"
