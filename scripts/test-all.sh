#!/usr/bin/env bash
# `make test-all`: the whole test suite on every major that pgcache supports, and Postgres' own tests on
# 15 and 17. A major that cannot be had here is named and left out; that none could be had is a failure.
#
# Environment: MAJORS="15 17" for fewer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/say.sh

unset PG_CONFIG
# make test takes a share of the calls that each change of a definition meets.
export PGCACHE_DEFINITIONS=all
failed=0 tested=0 lines=()

note() { lines+=("$*"); }

counts() { grep -E '^[0-9]+ passed, [0-9]+ failed$' "$1" | tail -n 1 || echo "it did not come to its end"; }

# Says no when the major cannot be had.
test_major() {
    local major=$1 log=build/test-all-$1.log
    if ! PG=$major scripts/need.sh rust server; then
        note "Postgres $major: cannot be had on this machine, not tested"
        return 1
    fi
    tested=$((tested + 1))
    # The pure crates know no Postgres: once is enough.
    [ $tested = 1 ] || WITHOUT=unit
    if WITHOUT=${WITHOUT:-} PG=$major make -s test 2>&1 | tee "$log"; then
        note "Postgres $major: $(counts "$log")"
    else
        failed=1
        note "Postgres $major: FAILED, $(counts "$log") (log: $log)"
    fi
}

check_major() {
    if PG=$1 scripts/postgres-check.sh; then
        note "Postgres $1: its own tests pass as without pgcache"
    else
        failed=1
        note "Postgres $1: its own tests FAILED"
    fi
}

mkdir -p build
for major in ${MAJORS:-15 16 17 18}; do
    say "Postgres $major"
    test_major "$major" || continue
    case $major in
        15 | 17) check_major "$major" ;;
    esac
done
printf '%s\n' "${lines[@]}"
[ "$failed" = 0 ] && [ "$tested" -gt 0 ]
