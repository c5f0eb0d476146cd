#!/usr/bin/env bash
# Runs the tests, cheapest first, in throwaway clusters. Installs missing components; a required component that cannot
# run counts as a failure. The last line of the output has the numbers of passed and failed tests. scripts/parts lists
# the parts.
#
# Usage: test.sh         the parts that each change must pass
#        test.sh NAME    one test: a file of sql/ or specs/, else the session tests whose name contains NAME, else the
#                        tests of the crates
#
# Environment: PG, PG_CONFIG as in the Makefile. PARTS="regress sessions" runs only these parts, PARTS=all runs all
# parts, WITHOUT="lint unit" leaves these parts out, SESSIONS="restart:: dump::" runs only these session tests.
# PGCACHE_PROFILE=release tests the library as it is shipped.
export PGCACHE_PROFILE=${PGCACHE_PROFILE:-checked}
. "$(dirname "$0")/head.sh"

# Prints the names whose `when` in scripts/parts is $1, on one line.
parts_when() { awk -v when="$1" '!/^#/ && $2 == when { printf "%s ", $1 }' scripts/parts; }

quick=$(parts_when quick) slow=$(parts_when slow)
PARTS=${PARTS:-$quick}
[ "$PARTS" != all ] || PARTS="$quick $slow"
[ $# = 0 ] || PARTS=
read -r -a modules <<<"${SESSIONS:-}"
# The length of each storm of the session tests, in seconds.
export PGCACHE_STORM_SECONDS=${PGCACHE_STORM_SECONDS:-2}

wanted() { [[ " $PARTS " == *" $1 "* && " ${WITHOUT:-} " != *" $1 "* ]]; }

for part in $PARTS; do
    grep -q "^$part " scripts/parts || die "there is no part $part: scripts/parts lists all."
done

need rust server python pgbouncer
[ $# = 0 ] || need redis
mapfile -t rows < <(grep -v '^#' scripts/parts)
for row in "${rows[@]}"; do
    read -r part _ _ _ needs _ <<<"$row"
    # shellcheck disable=SC2086 # words
    [ "$needs" = - ] || ! wanted "$part" || need ${needs//,/ }
done
need_files 4096 'make test'

# Parts that did not run, because they cannot run here or because their sources have not changed. The end of the output
# lists them; they do not count as failures.
absent=()
passed=0 failed=0 seconds=() started=false

# WHAT SAID: returns whether need.sh can install WHAT. If not, lists SAID as absent.
have() { scripts/need.sh "$1" || { absent+=("$2") && return 1; }; }

tally() { passed=$((passed + $1)) failed=$((failed + $2)); }

# NAME COMMAND...: runs a step and records how long it took.
timed() {
    local from=$SECONDS status=0
    step "$@" || status=$?
    seconds+=("$((SECONDS - from)) $1")
    return $status
}

# Runs a step that counts as one test.
one_test() {
    if timed "$@"; then tally 1 0; else tally 0 1; fi
}

# Runs a step whose log reports each test. It is also a failure if no test ran.
many_tests() {
    local name=$1 status=0 good bad
    timed "$@" || status=$?
    read -r good bad < <(results "$LOG/$name.log")
    if [ "$bad" = 0 ] && { [ $status != 0 ] || [ "$good" = 0 ]; }; then
        say "$name: no result was reported (log: $LOG/$name.log)"
        bad=1
    fi
    tally "$good" "$bad"
}

# KIND 'FILE OR FOLDER ...' NAME COMMAND...: runs a step of that kind whose outcome depends only on these files. The
# step does not run again until one of the files changes. The stamps are in build/, so in a new clone every step runs.
deterministic() {
    local kind=$1 inputs=$2 name=$3 stamp=$ROOT/build/stamps/$3 sum before=$failed
    # shellcheck disable=SC2086 # words
    sum=$({ rustc --version && find $inputs -type f -not -path '*/target/*' -not -path '*/corpus/*' -print0 | sort -z | xargs -0 sha256sum; } | sha256sum)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$sum" ]; then
        absent+=("$name, which has passed with the same sources")
        return
    fi
    "$kind" "${@:3}"
    [ "$failed" = "$before" ] || return 0
    mkdir -p "${stamp%/*}"
    echo "$sum" >"$stamp"
}

finish() {
    [ ${#absent[@]} = 0 ] || printf 'did not run here: %s\n' "${absent[@]}"
    [ ${#seconds[@]} = 0 ] || printf '%s\n' "${seconds[@]}" | sort -rn | awk -v load="$(cut -d' ' -f1 /proc/loadavg)" '
        { all += $1; if (NR <= 12) line = line (NR > 1 ? ", " : "") $2 " " $1 }
        END { printf "seconds: %s; all %d; load %s\n", line, all, load }'
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" = 0 ]
}

# Runs a step without which nothing else can run.
must() { timed "$@" || { tally 0 1; finish; exit 1; }; }

stop_cluster() { scripts/cluster.sh remove test >/dev/null 2>&1 || true; }

# All majors share one target folder, because these crates do not link with Postgres.
cargo_test() { CARGO_TARGET_DIR=$ROOT/build/target nice cargo test --locked --no-fail-fast "$@"; }

# Runs in a subshell, because variables that point at this cluster must not reach the tests that start their own
# clusters.
regress() (
    eval "$(scripts/cluster.sh env test)"
    make -s installcheck "$@" PG_CONFIG="$PG_CONFIG" PGCACHE_PROFILE="$PGCACHE_PROFILE"
)

# Runs pg_regress on a server with this line in its configuration, with arguments for make.
served() {
    local line=$1
    shift
    scripts/cluster.sh restart test 'max_prepared_transactions = 10' 'pgcache.expire_interval = 0' "$line"
    regress "$@"
}

# Runs pg_regress and the isolation tests: 'conf line' [arguments of make]. regress-parallel is for a Postgres with
# assertions (cassert.sh): it runs each query in a parallel worker if Postgres can.
regress_part() {
    many_tests "$part" served "$@" ISOLATION=
    many_tests "${part/regress/isolation}" served "$@" REGRESS=
}

# Runs pg_regress without catalog caches, as if another session changed the catalogs at every opportunity. One file
# takes minutes.

discarding() {
    served '' REGRESS=install ISOLATION=
    scripts/cluster.sh psql test -q -c 'ALTER DATABASE contrib_regression SET debug_discard_caches = 1'
    regress REGRESS="${DISCARDING:-fetch attached}" ISOLATION= REGRESS_OPTS="--use-existing --dbname=contrib_regression --outputdir=$BUILD/regress-out"
}

# Runs session tests: PRELOAD TABLE_PATH [libtest's arguments]. All tests must pass with and without preload, and with
# direct access and plans, because the tier and the path affect only speed. `few-*` runs the modules for which the path
# or the preload matters: modules whose random statements and storms have found defects with plans, and modules in which
# Postgres locks replace leases. Servers of the Redis protocol preload the library themselves and choose no path, so
# their tests run once.
session_part() {
    local preload=$1 path=$2
    shift 2
    PGCACHE_CRON=$(has_cron) PGCACHE_PRELOAD=$preload PGCACHE_TABLE_PATH=$path many_tests "$part" session_tests \
        ${modules[@]+"${modules[@]}"} "$@"
}

# Runs the parts that need no server.
lints() {
    one_test lint-format scripts/lint.sh format
    one_test lint-pages scripts/lint.sh pages prose
    many_tests lint-sources scripts/lint.sh sources
    deterministic one_test 'src crates Cargo.toml Cargo.lock scripts/lint.sh' lint-majors scripts/lint.sh majors
    if command -v dpkg >/dev/null; then
        deterministic one_test scripts ways-to-rust scripts/check.sh rust
    else
        absent+=("the ways to a Rust on Debian and Ubuntu, which need dpkg")
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        one_test lint-clippy scripts/lint.sh clippy
    else
        absent+=("clippy, which this Rust has not got")
    fi
}

# Runs the tests of the store and of the protocol under Miri, which detects out-of-bounds accesses, data races and
# invalid references. The tests do less work there, because Miri is a hundred times slower.
miri() (
    export CARGO_TARGET_DIR=$ROOT/build/target-miri
    scripts/nightly.sh cargo miri setup && nice scripts/nightly.sh cargo miri test --locked --package pgcache-store --lib &&
        nice scripts/nightly.sh cargo miri test --locked --package pgcache-resp --lib --test divided_requests
)

miri_tests() {
    have miri "the tests of the store and of the protocol under Miri, which needs a nightly toolchain" || return 0
    deterministic many_tests 'crates/store crates/resp Cargo.lock' miri miri
}

# Sends random commands to Redis and to a model behind the crate `resp`. RESP_COMMANDS sets the number of commands.
against_redis() { cargo_test --package pgcache-resp --test differential -- --ignored; }

# Tests the crates that do not link with Postgres, including their models.
unit_tests() {
    local crate
    for crate in coherence resp store; do
        deterministic many_tests "crates/$crate Cargo.lock" "unit-$crate" cargo_test --package "pgcache-$crate"
    done
    if have nightly "the fuzz targets, which need a nightly toolchain"; then
        one_test fuzz scripts/fuzz.sh store "${FUZZ_SECONDS:-15}"
        one_test fuzz-protocol scripts/fuzz.sh resp "${FUZZ_SECONDS:-15}"
    fi
    ! have redis "the protocol beside a Redis, which needs redis-server" || many_tests against-redis against_redis
}

# Tests each file of bench/pgbench, and the arithmetic of the benchmarks.
tools() {
    many_tests bench-driver cargo_test --manifest-path bench/driver/Cargo.toml
    one_test bench-tests bench/run.sh tests
    one_test bench-by-hand bench/run.sh by_hand --smoke --out "$ROOT/build/bench/smoke/by_hand-$$"
}

# Runs every workload of the benchmarks. Checks that it runs and that its answers are right, without measuring.
smokes() {
    local name
    for name in $(bench/run.sh names); do
        [ "$name" != application ] || have go "bench/run.sh application, which needs Go" || continue
        one_test "bench-smoke-$name" bench/run.sh "$name" --smoke --out "$ROOT/build/bench/smoke/$name-$$"
    done
    rm -rf "$ROOT/build/bench/smoke"
    have etcd "etcd beside pgcache in bench/run.sh kv, which cannot be had here" || true
}

# Runs the examples, the programs of docs/drivers.md, and other projects' software over attached tables. Lists missing
# languages at the end.
examples() {
    local language languages=(python) shops=(python) attached=(cache_table.py)
    for language in node go ruby java php; do
        have "$language" "the programs in $language, which needs that language" || continue
        languages+=("$language")
        [ ! -d "examples/$language" ] || shops+=("$language")
        [ "$language" != node ] || attached+=(sessions.js keyv.js)
    done
    ! have laravel "Laravel over an attached table, which no package brings here" || attached+=(laravel.php)
    ! have symfony-cache "Symfony's cache over an attached table, which no package brings here" || attached+=(symfony.php)
    many_tests examples scripts/examples.sh "${shops[@]}"
    many_tests drivers scripts/drivers.sh "${languages[@]}"
    many_tests attached scripts/attached.sh "${attached[@]}"
}

xa() {
    ! have maven "global transactions by a transaction manager, which needs Maven" || many_tests xa scripts/xa.sh
}

# Runs unchanged Redis clients against Redis and pgcache. Lists missing clients at the end.
clients() {
    local program needs programs=()
    while read -r program needs; do
        # shellcheck disable=SC2086 # words
        if [ "$needs" = - ] || scripts/need.sh ${needs//,/ } </dev/null; then
            programs+=("$program")
        else
            absent+=("the client $program of the Redis protocol, which needs ${needs//,/, }")
        fi
    done < <(grep -v '^#' t/clients/programs)
    many_tests clients scripts/clients.sh "${programs[@]}"
}

# Runs the frameworks' own tests of the stores. Lists missing stores at the end.
stores() {
    local needs words names=()
    for needs in stores/*/needs; do
        read -r -a words <"$needs"
        if scripts/need.sh "${words[@]}"; then
            names+=("$(basename "${needs%/needs}")")
        else
            absent+=("the store $(basename "${needs%/needs}"), which needs ${words[*]}")
        fi
    done
    many_tests stores scripts/stores.sh "${names[@]}"
}

# NAME: runs the test with this name, of any kind.
one() {
    local part=one
    if [ -e "sql/$1.sql" ]; then
        many_tests regress-one served '' REGRESS="install $1" ISOLATION=
    elif [ -e "specs/$1.spec" ]; then
        many_tests isolation-one served '' REGRESS= ISOLATION="$1"
    elif "$(session_program)" --list "$1" 2>/dev/null | grep ': test$' >/dev/null; then
        modules=("$1")
        session_part 1 auto
        cat "$LOG/one.log"
    else
        many_tests unit-one cargo_test --workspace --exclude pgcache --exclude pgcache-tests "$1"
    fi
}

# Prints 1 if pg_cron is installed, otherwise 0.
has_cron() { if [ -e "$("$PG_CONFIG" --pkglibdir)/pg_cron.so" ]; then echo 1; else echo 0; fi; }

# Only a Postgres that was built from source may lack pg_cron. For a packaged Postgres it must be available.
find_cron() {
    scripts/need.sh cron && return
    [[ $PG_CONFIG == "$(scripts/cache-dir.sh)"/* ]] || exit 1
    absent+=("the tests of pg_cron, which Postgres $PG_MAJOR has not got here")
}

# Builds, stages and starts the server once, before the first part that needs it.
start_server() {
    ! $started || return 0
    started=true
    must build nice make -s all PG_CONFIG="$PG_CONFIG" PGCACHE_PROFILE="$PGCACHE_PROFILE"
    must stage scripts/stage.sh
    trap stop_cluster EXIT
    stop_cluster
    must cluster scripts/cluster.sh start test 'max_prepared_transactions = 10' 'pgcache.expire_interval = 0'
    export_staged
}

[[ $PARTS != *sessions* ]] || find_cron
[ -e "$("$PG_CONFIG" --sharedir)/extension/amcheck.control" ] ||
    absent+=("amcheck's look at tables and indexes, which Postgres $PG_MAJOR has not got here")

if [ $# != 0 ]; then
    start_server
    one "$1"
fi
for row in "${rows[@]}"; do
    read -r part _ _ server _ _ command <<<"$row"
    wanted "$part" || continue
    [ "$server" = no ] || start_server
    eval "$command"
done

finish
