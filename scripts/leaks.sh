#!/usr/bin/env bash
# `make leaks`: searches for memory leaks. Calls every function many times in one session, including failing calls, and
# measures the memory of the session's backend (t/tests/leaks.rs): Postgres' memory contexts, and all memory that is not
# shared. For each function, prints both before and after the calls, in kB.
#
# Environment: CALLS=200000 of each function; a million takes an hour or more.
. "$(dirname "$0")/head.sh"
need rust server
scripts/stage.sh

PGCACHE_PRELOAD=1 PGCACHE_LEAK_CALLS=${CALLS:-200000} session_tests leaks:: --nocapture --test-threads 2
