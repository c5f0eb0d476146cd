#!/usr/bin/env bash
# The storms of t/tests (coherence_storm, resp_storm, resp_tracking_tables_storm) and fetch_windows on a library that
# waits at random in the windows of the coherence protocol (cargo feature `pauses`, src/pg/session/pause.rs). It lies in a stage of its own.
#
# Usage: storm.sh [SECONDS]      300 when not given. SOURCE=folder: the library of another source
#                                tree, to see that a broken protocol is caught.
. "$(dirname "$0")/head.sh"
need rust server

[ -x "$BINDIR/postgres" ] || scripts/stage.sh
source=${SOURCE:-$ROOT}
paused=$RUN/stage-pauses

# What does not depend on the feature was compiled before.
if [ -e "$BUILD/target" ] && [ ! -e "$BUILD/target-pauses" ]; then
    cp -a "$BUILD/target" "$BUILD/target-pauses"
fi

(
    cd "$source"
    touch src/lib.rs # two trees with one target folder: the library has one name there
    CARGO_TARGET_DIR=$BUILD/target-pauses PGRX_PG_CONFIG_PATH=$PG_CONFIG nice cargo build --release --locked \
        --package pgcache --no-default-features --features "pg$PG_MAJOR,pauses"
)
rm -rf "$paused"
cp -a "$STAGE" "$paused"
cp --remove-destination "$BUILD/target-pauses/release/libpgcache.so" \
    "$paused$("$PG_CONFIG" --pkglibdir)/pgcache.so"

PGCACHE_BINDIR=$paused$("$PG_CONFIG" --bindir) PGCACHE_STORM_SECONDS=${1:-300} session_tests -- coherence_storm fetch_windows resp_storm resp_tracking_tables_storm --nocapture
