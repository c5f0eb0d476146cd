#!/usr/bin/env bash
# What cache_depend costs an UPDATE of 100,000 rows, beside none and beside a trigger that does nothing.
#
# Usage: run.sh [--quick | --smoke] [--rows N] [--repeats N] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
. bench/client.sh
PYTHONPATH=$root/bench/pgbench exec "$python" "$here/depend.py" "$@"
