#!/usr/bin/env bash
# Shows that the tests see what they are there for: sets one fault after the other (src/pg/session/fault.rs) and runs
# the test that the fault names, which must fail. Before that the same tests must pass without a fault. The library is
# built with the cargo feature `pauses` and lies in a stage of its own.
#
# Usage: power.sh [FAULT...]      all faults when none is named. JOBS=2: so many tests at a time.
. "$(dirname "$0")/head.sh"
need rust server

table=src/pg/session/fault.rs
# A test that is not over by then counts as failed: many faults show in a wait that never ends.
limit=${LIMIT:-45}
mapfile -t faults < <(sed -n 's/^    \([A-Z][A-Za-z]*\) => "\(.*\)",$/\1 \2/p' "$table")
if [ $# -gt 0 ]; then
    mapfile -t faults < <(printf '%s\n' "${faults[@]}" | grep -E "^($(IFS='|' && echo "$*")) ")
fi
[ ${#faults[@]} -gt 0 ] || die "$table has no such fault."

build() {
    CARGO_TARGET_DIR=$BUILD/target PGRX_PG_CONFIG_PATH=$PG_CONFIG nice cargo build --profile checked --locked \
        --package pgcache --no-default-features --features "pg$PG_MAJOR,pauses"
}

[ -x "$BINDIR/postgres" ] || scripts/stage.sh
step power-build build
stage=$RUN/stage-power
rm -rf "$stage"
cp -a "$STAGE" "$stage"
cp --remove-destination "$BUILD/target/checked/libpgcache.so" "$stage$("$PG_CONFIG" --pkglibdir)/pgcache.so"

program=$(session_tests --no-run 2>&1 | sed -n 's/.*Executable tests.main.rs (\(.*\)).*/\1/p' | xargs -r realpath)
[ -x "$program" ] || die "the session tests could not be built: cargo test --package pgcache-tests --no-run"
export program limit LOG
export PGCACHE_BINDIR=$stage$("$PG_CONFIG" --bindir) PGCACHE_RUN=$RUN/power PGCACHE_SERVER_USER=$SERVER_USER PGCACHE_PRELOAD=1
mkdir -p "$PGCACHE_RUN" "$LOG/power"
[ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$PGCACHE_RUN"
cd t # where cargo runs the tests of a package

# FAULT TEST: runs the test with the fault, and prints a line of the table.
try() {
    local log=$LOG/power/$1.log began=$SECONDS status=0 seen
    PGCACHE_FAULT=$1 timeout "$limit" nice "$program" --exact "$2" >"$log" 2>&1 || status=$?
    case $status in
        0) seen='NOT SEEN' ;;
        124) seen='seen, by its time' ;;
        *) seen=seen ;;
    esac
    grep -q '^running 1 test$' "$log" || seen='NO SUCH TEST'
    printf '%-28s %-18s %3d s  %s\n' "$1" "$seen" $((SECONDS - began)) "$2"
}
export -f try

control() { nice "$program" --exact --test-threads "${JOBS:-2}" "${tests[@]}"; }
mapfile -t tests < <(printf '%s\n' "${faults[@]}" | cut -d ' ' -f 2 | sort -u)
step power-control control
grep -q "^test result: ok. ${#tests[@]} passed" "$LOG/power-control.log" || die "not all of the ${#tests[@]} tests ran (log: $LOG/power-control.log)."

printf '%s\n' "${faults[@]}" | xargs -P "${JOBS:-2}" -L 1 bash -c 'try "$@"' try | tee "$LOG/power.log"
unseen=$(grep -c 'NOT SEEN\|NO SUCH TEST' "$LOG/power.log" || true)
printf '%d faults, %d not seen, %d s\n' ${#faults[@]} "$unseen" $SECONDS
[ "$unseen" = 0 ]
