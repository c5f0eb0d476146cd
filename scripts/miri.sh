#!/usr/bin/env bash
# The store's own tests under Miri, which sees each access out of bounds, each data race and each reference
# that must not be. The tests do less there: Miri takes a hundred times as long.
#
# Usage: miri.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=$PWD/build/target-miri
cargo +nightly miri setup
nice cargo +nightly miri test --locked --package pgcache-store --lib
