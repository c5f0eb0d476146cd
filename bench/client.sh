# shellcheck shell=bash
# Sourced by the run.sh of a benchmark, from the root of the checkout: what all of them need. Installs what
# is missing, stages the extension unless the caller has, builds the client, and finds a $python with matplotlib.

. scripts/limits.sh
scripts/need.sh python rust server redis charts
PATH=$(scripts/rust-path.sh)
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

mkdir -p build/bench-driver
cargo build --quiet --release --locked --manifest-path bench/driver/Cargo.toml --target-dir build/bench-driver ||
    { echo "bench: the client (bench/driver) does not build: see above." >&2; exit 1; }

. bench/python.sh
