#!/usr/bin/env bash
# Runs the benchmarks: all of them with a page of results, or the one that is named. README.md explains them.
#
# Usage: run.sh [--quick] [--minutes N] [--only part,part] [--out DIR] [--list]
#        run.sh NAME [--quick | --smoke] [--out DIR] [...]      run.sh NAME --help, run.sh --help
#        run.sh tests                                            the arithmetic behind the figures
#        run.sh names                                            of the workloads
#        run.sh hit_rate --trace FILE [--mib N,N]                a trace of your own, without servers
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "${1:-}" != names ] || exec python3 -B -m bench names

. scripts/limits.sh
servers=yes
if [ "${1:-}" = hit_rate ] && [[ " $* " == *" --trace"* ]]; then
    servers=
fi
scripts/need.sh python rust ${servers:+server redis}
python=python3
if [[ " $* " != *" --no-charts "* ]]; then
    scripts/need.sh charts
    # Packages install matplotlib for the system's own Python, which need not be the first on the PATH.
    "$python" -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3
fi
PATH=$(scripts/rust-path.sh)
[ -n "$servers" ] || exec "$python" -B -m bench "$@"
case ${1:-} in
tuning) scripts/need.sh pgbouncer ;;
application) scripts/need.sh go ;;
kv) scripts/need.sh etcd || echo "bench: etcd is missing: pgcache is measured alone." >&2 ;;
esac
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

[ -e build/bench-driver/release/bench-driver ] || echo "building the client, bench/driver: half a minute, once"
mkdir -p build/bench-driver
cargo build --quiet --release --locked --manifest-path bench/driver/Cargo.toml --target-dir build/bench-driver ||
    { echo "bench: the driver (bench/driver) does not build: see above." >&2; exit 1; }

exec "$python" -B -m bench "$@"
