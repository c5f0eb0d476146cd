#!/usr/bin/env bash
# The rounds through a small web server, loaded by k6, as they were published. README.md in this folder explains them.
#
# Usage: run.sh [--quick | --smoke] [--entries N] [--users N] [--seconds S] [--repeats N] [--systems a,b] [--tcp] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
. bench/client.sh

command -v go >/dev/null || { echo "web: go is not on the PATH: install Go 1.26 or newer." >&2; exit 1; }
mkdir -p build/bench-web
(cd bench/web/server && GOFLAGS='-mod=readonly -buildvcs=false' nice go build -o "$root/build/bench-web/server" .) ||
    { echo "web: the web server (bench/web/server) does not build: see above." >&2; exit 1; }
case " $* " in
    *" --smoke "*) ;; # a loop of its own asks: k6 takes minutes to build
    *) PGCACHE_K6=$(scripts/k6.sh) && export PGCACHE_K6 ;;
esac
PYTHONPATH=$root/bench/pgbench:$here exec "$python" -m web "$@"
