#!/usr/bin/env bash
# Hit rate at many sizes of value, by the store alone: no server, one thread, the same trace every time.
#
# Usage: sizes.sh [MiB]            the sweep from 64 bytes to 1 MiB in a tier of so many MiB (64); minutes
#        sizes.sh --smoke          seconds; the sizes that once had the hit rate of LRU, asserted
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

sweep() {
    cargo run --quiet --release --locked -p pgcache-store --example sizes -- "$@"
}

# Fails where a size from 3 kB on hits less than 74 % of its gets.
judge() {
    awk -F '\t' '{ print } NR > 1 && $1 >= 3000 && $2 < 74 { low = low " " $1 } NR == 1 { next } { n++ }
        END { if (low != "" || n == 0) { print "below 74 %:" (n ? low : " nothing was measured") > "/dev/stderr"; exit 1 } }'
}

if [ "${1:-}" = --smoke ]; then
    sweep 16 3300 7400 11500 27900 31800 32000 36000 60000 | judge
else
    sweep "$@" | judge
fi
