#!/usr/bin/env bash
# Cold start and stampede: four shops whose cache is empty at first. README.md in this folder explains it.
#
# Usage: run.sh [--smoke] [--seconds S] [--repeats N] [--scenarios a,b] [--modes lease,fetch,none] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

export PYTHONPATH=$root/bench
. scripts/limits.sh
scripts/need.sh python rust server
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

build=build/stampede-client
mkdir -p "$build"
cargo build --quiet --release --locked --manifest-path bench/stampede/client/Cargo.toml --target-dir "$build" ||
    { echo "stampede: the client (bench/stampede/client) does not build: see above." >&2; exit 1; }

case " $* " in *" --smoke "*) python3 -B -m unittest discover -q -s "$here" -p 'test_*.py' ;; esac
exec python3 -B "$here/stampede.py" "$@"
