#!/usr/bin/env bash
# Expiry under churn: room on disk, HOT updates, how long expired rows stay, and what it costs.
# README.md in this folder explains the cases and the charts.
#
# Usage: run.sh [--smoke] [--seconds S] [--scale F] [--clients N] [--cases a,b,c] [--systems worker,off,...] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

scripts/need.sh python rust server charts
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

. bench/python.sh
PYTHONPATH=$here:$root/bench/pgbench exec "$python" -m churn "$@"
