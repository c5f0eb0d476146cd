#!/usr/bin/env bash
# Verifies that the tests detect defects. Builds the library with the cargo feature `pauses`, in a separate stage, and
# breaks it in two ways:
#
# - by deliberate faults, one after the other (src/pg/session/fault.rs). Each names the test that must fail. Before the
#   faults, the same tests must pass without a fault.
# - by mutants of the code that keeps caches coherent (scripts/mutants.py), which a seed selects. For each mutant, the
#   test modules of its file run until one fails.
#
# Usage: power.sh [FAULT...]      all faults, and mutants, if none is named
#
# Environment: SEED=7 draws the mutants of an earlier run again, MUTANTS=10 sets their number (0: none), JOBS=2 the
# number of tests at a time.
export PGCACHE_PROFILE=checked
. "$(dirname "$0")/head.sh"
need rust server python

table=src/pg/session/fault.rs
# A test that has not ended by this time counts as failed, because many faults cause a wait that never ends.
limit=${LIMIT:-30}
jobs=${JOBS:-2}
mutants=${MUTANTS:-10}
seed=${SEED:-$(date +%s)}
mapfile -t faults < <(sed -n 's/^    \([A-Z][A-Za-z]*\) => "\(.*\)",$/\1 \2/p' "$table")
if [ $# -gt 0 ]; then
    mapfile -t faults < <(printf '%s\n' "${faults[@]}" | grep -E "^($(IFS='|' && echo "$*")) ")
    mutants=0
fi
[ ${#faults[@]} -gt 0 ] || die "$table has no such fault."

# Prints the arguments of a cargo build of this tree, or of a copy of it.
build=(env "CARGO_TARGET_DIR=$BUILD/target" "PGRX_PG_CONFIG_PATH=$PG_CONFIG" nice cargo build --profile checked --locked
    --package pgcache --no-default-features --features "pg$PG_MAJOR,pauses")

# NAME: makes a stage with the library that was just built, and sets `folder`.
stage() {
    folder=$RUN/stage-$1
    rm -rf "$folder"
    cp -a "$STAGE" "$folder"
    cp --remove-destination "$BUILD/target/checked/libpgcache.so" "$folder$("$PG_CONFIG" --pkglibdir)/pgcache.so"
}

step power-build scripts/stage.sh

program=$(session_program)
[ -x "$program" ] || die "the session tests could not be built: cargo test --package pgcache-tests --no-run"
programs=$("$PG_CONFIG" --bindir)
export program limit LOG
export PGCACHE_BINDIR=$BINDIR PGCACHE_RUN=$RUN/power PGCACHE_SERVER_USER=$SERVER_USER PGCACHE_PRELOAD=1
mkdir -p "$PGCACHE_RUN" "$LOG/power"
rm -f "$PGCACHE_RUN/leftovers"
# Copy the program, so that a build that runs at the same time does not replace it.
cp "$program" "$PGCACHE_RUN/sessions"
program=$PGCACHE_RUN/sessions
[ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$PGCACHE_RUN"

# Prints the folder in which cargo runs the tests of a package.
in_tests() (cd "$ROOT/t" && "$@")

# TEST: returns whether the test left something behind on its server (t/src/handback.rs), and clears the record.
left_behind() {
    local file=$PGCACHE_RUN/leftovers
    grep -q "^$1: " "$file" 2>/dev/null && sed -i "/^$1: /d" "$file"
}

# FAULT TEST: runs the test with the fault, and prints a line of the table.
try_fault() {
    local log=$LOG/power/$1.log began=$SECONDS status=0 seen
    PGCACHE_FAULT=$1 timeout "$limit" nice "$program" --test-threads 2 --exact "$2" >"$log" 2>&1 || status=$?
    case $status in
        0) if left_behind "$2"; then seen='seen, left behind'; else seen='NOT SEEN'; fi ;;
        101) seen=seen ;; # the status after a failed test
        124) seen='seen, by its time' ;;
        *) seen='DID NOT RUN' ;;
    esac
    grep -q '^running 1 test$' "$log" || seen='NO SUCH TEST'
    printf '%-28s %-18s %3d s  %s\n' "$1" "$seen" $((SECONDS - began)) "$2"
}

# MUTANT WHAT MODULES: runs one module after the other until a test fails.
try_mutant() {
    local log=$LOG/power/$1.log began=$SECONDS seen='NOT SEEN' where=$3 module status
    for module in $3; do
        status=0
        PGCACHE_FAULT=$1 timeout $((limit * 4)) nice "$program" --test-threads 2 "$module::" >"$log" 2>&1 || status=$?
        case $status in
            0) continue ;;
            101)
                where=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | head -n 1)
                # Run the test without the mutant: if it fails there, too, its failure says nothing about the mutant.
                if nice "$program" --exact "$where" >"$log.without" 2>&1; then seen=seen; else seen='FAILS ANYWAY'; fi
                ;;
            124) seen='seen, by its time' where=$module ;;
            *) seen='DID NOT RUN' where=$module ;;
        esac
        break
    done
    printf '%-28s %-18s %3d s  %s\n%55s%s\n' "$1" "$seen" $((SECONDS - began)) "$where" '' "$2"
}
export -f try_fault try_mutant left_behind

mapfile -t tests < <(printf '%s\n' "${faults[@]}" | cut -d ' ' -f 2 | sort -u)
step power-control in_tests nice "$program" --exact --test-threads "$jobs" "${tests[@]}"
grep -q "^test result: ok. ${#tests[@]} passed" "$LOG/power-control.log" ||
    die "not all of the ${#tests[@]} tests ran (log: $LOG/power-control.log)."

printf '%s\n' "${faults[@]}" | in_tests xargs -P "$jobs" -L 1 bash -c 'try_fault "$@"' try | tee "$LOG/power.log"

if [ "$mutants" -gt 0 ]; then
    scripts/need.sh mutants
    PATH=$PATH:$(scripts/cache-dir.sh)/tools/bin
    step power-mutants scripts/mutants.py "$seed" "$mutants" "$BUILD/mutants" "${build[@]}" --message-format json
    stage mutants
    export PGCACHE_BINDIR=$folder$programs
    say "mutants of SEED=$seed"
    tr '\t' '\n' <"$LOG/power-mutants.log" | in_tests xargs -P "$jobs" -d '\n' -n 3 bash -c 'try_mutant "$@"' try | tee -a "$LOG/power.log"
fi

unseen=$(grep -c 'NOT SEEN\|NO SUCH TEST\|DID NOT RUN\|FAILS ANYWAY' "$LOG/power.log" || true)
printf '%d faults and %d mutants, %d not seen, %d s\n' ${#faults[@]} "$mutants" "$unseen" $SECONDS
[ "$unseen" = 0 ]
