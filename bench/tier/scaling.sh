#!/usr/bin/env bash
# How get and set of the tier scale with processes, without SQL. README.md in this folder explains the table.
#
# Usage: scaling.sh [--seconds S] [--repeats N] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

scripts/need.sh python rust charts
mkdir -p build/bench-tier
cargo build --quiet --release --locked --manifest-path bench/tier/native/Cargo.toml --target-dir build/bench-tier

. bench/python.sh
PYTHONPATH=$root/bench/pgbench exec "$python" "$here/scaling.py" "$@"
