#!/usr/bin/env bash
# `make leaks`: calls every function so many times in one session, failing calls among them, and watches what
# its backend holds (t/tests/leaks.rs): Postgres' memory contexts, and all memory that is not shared. Prints
# both, in kB, before and after, for each function.
#
# Environment: CALLS=200000 of each function; a million takes an hour or more.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh rust server
. scripts/env.sh
. scripts/session-tests.sh
scripts/stage.sh

PGCACHE_PRELOAD=1 PGCACHE_LEAK_CALLS=${CALLS:-200000} session_tests leaks:: -- --nocapture --test-threads 1
