#!/usr/bin/env bash
# The loads of a key-value store on pgcache, beside a real etcd. README.md in this folder explains them.
#
# Usage: run.sh [--quick | --smoke] [--seconds S] [--repeats N] [--systems a,b] [--loads a,b] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

export PYTHONPATH=$root/bench
. scripts/limits.sh
scripts/need.sh python rust server
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

command -v go >/dev/null || { echo "kv: go is not on the PATH: install Go 1.26 or newer." >&2; exit 1; }
GOFLAGS='-mod=readonly -buildvcs=false' nice go build -C bench/kv/load -o "$root/build/bench-kv/load" . ||
    { echo "kv: the client (bench/kv/load) does not build: see above." >&2; exit 1; }

scripts/need.sh etcd || echo "kv: etcd is missing: pgcache is measured alone." >&2
case " $* " in *" --smoke "*) python3 -B -m unittest discover -q -s "$here" -p 'test_*.py' ;; esac
exec python3 -B "$here/kv.py" "$@"
