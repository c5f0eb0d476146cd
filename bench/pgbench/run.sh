#!/usr/bin/env bash
# The rounds: Redis, plain tables and pgcache side by side. README.md in this folder explains them.
#
# Usage: run.sh [--quick | --smoke] [--entries N] [--clients N] [--seconds S] [--repeats N]
#               [--value-size BYTES] [--systems a,b] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

scripts/need.sh python rust server redis charts
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

build=build/bench-driver
mkdir -p "$build"
cargo build --quiet --release --locked --manifest-path bench/driver/Cargo.toml --target-dir "$build" ||
    { echo "rounds: the client of the rounds (bench/driver) does not build: see above." >&2; exit 1; }

# Packages put matplotlib beside the system's own Python, which need not be the first on the PATH.
for python in python3 /usr/bin/python3; do
    "$python" -c 'import matplotlib' 2>/dev/null && break
done

case " $* " in *" --smoke "*) PYTHONPATH=$here "$python" -m unittest discover -q -s "$here/tests" ;; esac
PYTHONPATH=$here exec "$python" -m rounds "$@"
