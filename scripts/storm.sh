#!/usr/bin/env bash
# Runs the storms of t/tests (coherence_storm, resp_storm, resp_tracking_tables_storm) and fetch_windows for longer than
# `make test` does. The library is built with the cargo feature `pauses` (src/pg/session/pause.rs): it waits at random
# in the windows of the coherence protocol, so that races become likely.
#
# Usage: storm.sh [SECONDS]      default: 300. SOURCE=folder builds the library from another source
#                                tree, to see that the tests detect a broken protocol.
export PGCACHE_PROFILE=checked
. "$(dirname "$0")/head.sh"
need rust server

if [ -n "${SOURCE:-}" ]; then
    make -s -C "$SOURCE" all PG_CONFIG="$PG_CONFIG" PGCACHE_PROFILE=checked BUILD="$BUILD/of-another-tree"
    rm -rf "$STAGE-of-another-tree"
    cp -a "$STAGE" "$STAGE-of-another-tree"
    STAGE+=-of-another-tree
    cp --remove-destination "$BUILD/of-another-tree/checked/pgcache.so" "$STAGE$("$PG_CONFIG" --pkglibdir)/pgcache.so"
else
    scripts/stage.sh
fi

PGCACHE_BINDIR=$STAGE$("$PG_CONFIG" --bindir) PGCACHE_STORM_SECONDS=${1:-300} session_tests \
    coherence_storm enabled::reloads fetch_windows resp_storm resp_tracking_tables_storm
