#!/usr/bin/env bash
# The hot tier against its rivals, as ratios in one run: SELECT 1, a prepared SELECT, a prepared upsert,
# and Redis by its own benchmark tool. README.md in this folder explains the table.
#
# Usage: run.sh [--quick] [--entries N] [--seconds S] [--repeats N] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

. bench/client.sh
PYTHONPATH=$root/bench/pgbench exec "$python" "$here/ratios.py" "$@"
