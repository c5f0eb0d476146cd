#!/usr/bin/env bash
# The figures behind docs/tuning.md, one question a table: room, transaction ids, batches, fillfactor, sweeps, long
# values, connections, the size of the tier. README.md in this folder says how to read them.
#
# Usage: run.sh [--quick | --smoke] [--part NAME] [--out DIR]
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

seconds=6 entries=1000000 some=100000 tiers="16 32 64 128" crowds="1 2 8 32 100" smoke=0 out='' only=''
while [ $# -gt 0 ]; do
    case $1 in
        --quick) seconds=3 entries=500000 ;;
        --smoke) seconds=1 entries=20000 some=2000 tiers=16 crowds="1 8" smoke=1 ;;
        --out) out=$2 && shift ;;
        --part) only=$2 && shift ;;
        *) echo "run.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift
done

scripts/need.sh server pgbouncer
. scripts/env.sh
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
out=${out:-build/bench/tuning-$(date +%Y%m%d-%H%M%S)}
mkdir -p "$out"
cluster=tuning pool=$RUN/pool
. "$here/parts.sh"

trap tear_down EXIT
tear_down
begin
parts=(ground room transaction_ids batches batched_gets fillfactor autovacuum sweeps long_values connections size_of_the_tier)
[ -z "$only" ] || parts=(ground "$only")
[ $smoke = 0 ] || parts=(ground transaction_ids batched_gets sweeps connections)
for part in "${parts[@]}"; do "$part"; done | tee "$out/report.md"
