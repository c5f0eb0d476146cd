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
scripts/stage.sh

mkdir -p "$RUN/t"
[ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$RUN/t"
PGCACHE_BINDIR=$BINDIR PGCACHE_RUN=$RUN/t PGCACHE_SERVER_USER=$SERVER_USER PGCACHE_PRELOAD=1 \
    PGCACHE_LEAK_CALLS=${CALLS:-200000} CARGO_TARGET_DIR=$ROOT/build/target \
    nice cargo test --locked --package pgcache-tests --test sessions leaks:: -- --nocapture --test-threads 1
