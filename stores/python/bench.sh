#!/usr/bin/env bash
# Compares the stores in Python with their frameworks' stock Redis stores on one server: over SQL, and over the
# Redis protocol (docs/door.md), both by TCP. The number in brackets is relative to the stock store. One thread,
# values of some 600 bytes, the best of fifteen alternating rounds. The client's processor time includes the
# framework's own work.
#
# Usage: stores/python/bench.sh
. "$(dirname "$0")/../../scripts/head.sh"
need server python
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
. stores/bench/door.sh
lock_packages
store=bench
work=$RUN/stores-bench
cluster=stores-bench
trap stop_both_ways EXIT
stop_both_ways
mkdir -p "$work"
. stores/python/packages.sh
build_packages "$ROOT/stores/python" "$ROOT/stores/django" >"$work/build.log" 2>&1 || { cat "$work/build.log" && exit 1; }
start_both_ways
PYTHONPATH=$site:stores/bench SQL="host=127.0.0.1 user=$PGUSER" DOOR=redis://127.0.0.1:$door/0 "$python" stores/python/bench.py "$postmaster"
