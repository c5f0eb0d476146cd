#!/usr/bin/env bash
# Runs a mixed load on all kinds of caches, while it kills backends and restarts the server (t/tests/soak.rs). Prints
# availability, errors by SQLSTATE and the tier's totals, and fails if an invariant does not hold at the end.
#
# Usage: soak.sh [SECONDS [SEED]]      default: 300 and a seed from the clock
. "$(dirname "$0")/head.sh"
need rust server
need_files 1024 'make soak'
scripts/stage.sh

PGCACHE_SOAK_SECONDS=${1:-300} PGCACHE_SOAK_SEED=${2:-$(date +%s)} session_tests soak:: --nocapture
