#!/usr/bin/env bash
# `make test-all`: runs every part of the tests, including the slow ones, on every major that pgcache supports, and
# Postgres' own tests on 15 and 17. A major that is not available here is named and skipped; if none is available, the
# run fails.
#
# Environment: MAJORS="15 17" for fewer.
. "$(dirname "$0")/head.sh"
unset PG_CONFIG
# `make test` combines each change of a definition with only some of the calls that it can interrupt; here all
# combinations run.
export PGCACHE_DEFINITIONS=all
# Likewise, send more of the random commands to which Redis and the crate `resp`, or Redis and a server, must give equal
# replies.
export RESP_COMMANDS=1000000 PGCACHE_STORM_SECONDS=15 FUZZ_SECONDS=30 PARTS=all
failed=0 tested=0 lines=()

note() { lines+=("Postgres $major: $*"); }

mkdir -p build
for major in ${MAJORS:-15 16 17 18 19}; do
    log=build/test-all-$major.log verdict=''
    if ! PG=$major scripts/need.sh rust server; then
        note "cannot be had on this machine, not tested"
        continue
    fi
    say "Postgres $major"
    tested=$((tested + 1))
    # The pure crates do not depend on Postgres, so they run once.
    [ $tested = 1 ] || WITHOUT=unit
    [ $tested = 1 ] || unset RESP_COMMANDS
    WITHOUT=${WITHOUT:-} PG=$major make -s test 2>&1 | tee "$log" || { failed=1 && verdict="FAILED (log: $log), "; }
    note "$verdict$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || echo 'it did not come to its end')"
    [[ $major =~ ^(15|17)$ ]] || continue
    if PG=$major scripts/check.sh postgres; then
        note "its own tests pass as without pgcache"
    else
        failed=1
        note "its own tests FAILED"
    fi
done
if [ "$tested" -gt 0 ]; then
    scripts/redis-suite.sh || failed=1
fi
printf '%s\n' "${lines[@]}"
[ "$failed" = 0 ] && [ "$tested" -gt 0 ]
