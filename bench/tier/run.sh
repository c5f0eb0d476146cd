#!/usr/bin/env bash
# The hot tier against its rivals, as ratios in one run: SELECT 1, a prepared SELECT, a prepared upsert,
# and Redis by its own benchmark tool. README.md in this folder explains the table.
#
# Usage: run.sh [--entries N] [--seconds S] [--repeats N] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

scripts/need.sh python rust server redis
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
PYTHONPATH=$root/bench/pgbench exec python3 "$here/ratios.py" "$@"
