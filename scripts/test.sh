#!/usr/bin/env bash
# Every test of the project, cheapest first, in throwaway clusters. What is missing gets installed; a
# component that is there to be tested and cannot run is a failure. The last line is the count.
#
# Environment: PG, PG_CONFIG as in the Makefile. PARTS="regress sessions" runs these parts only, WITHOUT="lint unit"
# all but these, SESSIONS="restart:: dump::" of the session tests only these.
. "$(dirname "$0")/head.sh"

PARTS=${PARTS:-lint unit regress regress-over-plans regress-without-preload sessions sessions-over-plans \
    sessions-without-preload storm examples clients stores bench}
read -r -a modules <<<"${SESSIONS:-}"

wanted() { [[ " $PARTS " == *" $1 "* && " ${WITHOUT:-} " != *" $1 "* ]]; }

need rust server python pgbouncer
! wanted sessions || need redis
! wanted bench || need redis memcached charts valgrind
need_files 4096 'make test'

# What did not run, because it cannot be had here; said at the end, and no failure.
absent=()

# Only where Postgres itself was built from source may pg_cron be out of reach; a package must be there.
cron=1
if [[ $PARTS != *sessions* ]]; then
    cron=0
elif ! scripts/need.sh cron; then
    case $PG_CONFIG in
        "$(scripts/cache-dir.sh)"/*) cron=0 absent+=("the tests of pg_cron, which Postgres $PG_MAJOR has not got here") ;;
        *) exit 1 ;;
    esac
fi

[ -e "$("$PG_CONFIG" --sharedir)/extension/amcheck.control" ] ||
    absent+=("amcheck's look at tables and indexes, which Postgres $PG_MAJOR has not got here")

passed=0 failed=0

# "PASSED FAILED" in a log of pg_regress, pg_isolation_regress or cargo test. A test's line is "test name ... ok 12 ms"
# up to Postgres 15 and "ok 1 - name 12 ms" from 16 on; of cargo test only the summary lines count.
results() {
    awk '
        /^(test|    ) .* \.\.\. ok +[0-9]+ ms/ || /^ok [0-9]+ .* ms$/      { passed++ }
        /^(test|    ) .* \.\.\. FAILED.* ms/ || /^not ok [0-9]+ .* ms$/   { failed++ }
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
            }
        }
        END { print passed + 0, failed + 0 }' "$1"
}

tally() { passed=$((passed + $1)) failed=$((failed + $2)); }

# A step that is one test.
one_test() {
    if step "$@"; then tally 1 0; else tally 0 1; fi
}

# A step that runs tests and reports each in its log. That none ran is a failure, too.
many_tests() {
    local name=$1 status=0 good bad
    step "$@" || status=$?
    read -r good bad < <(results "$LOG/$name.log")
    if [ "$bad" = 0 ] && { [ $status != 0 ] || [ "$good" = 0 ]; }; then
        say "$name: no result was reported (log: $LOG/$name.log)"
        bad=1
    fi
    tally "$good" "$bad"
}

finish() {
    [ ${#absent[@]} = 0 ] || printf 'did not run here: %s\n' "${absent[@]}"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" = 0 ]
}

# Nothing can run when this fails.
must() { step "$@" || { tally 0 1; finish; exit 1; }; }

stop_cluster() { scripts/cluster.sh remove test >/dev/null 2>&1 || true; }

# One target folder for all majors: what runs here links with no Postgres.
cargo_test() { CARGO_TARGET_DIR=$ROOT/build/target nice cargo test --locked --no-fail-fast "$@"; }

pure_crates() {
    local manifest
    for manifest in crates/*/Cargo.toml; do
        [ -e "$manifest" ] && printf -- '--package %s ' "$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)"
    done
}

# A subshell: what points at this cluster must not reach the tests that start their own.
regress() (
    eval "$(scripts/cluster.sh env test)"
    make -s installcheck "$@" PG_CONFIG="$PG_CONFIG"
)

# Everything holds with the library preloaded and without: the tier changes speed, not results.
sessions() {
    local skipped=()
    # Servers of the Redis protocol load the library by themselves, and take no way to a table: once is enough.
    [ "$1 $2" = "1 auto" ] || skipped=(--skip resp_)
    PGCACHE_CRON=$cron PGCACHE_PRELOAD=$1 PGCACHE_TABLE_PATH=$2 session_tests --no-fail-fast -- \
        ${modules[@]+"${modules[@]}"} ${skipped[@]+"${skipped[@]}"}
}

# A part of the session tests: PRELOAD TABLE_PATH. The way to the table, too, changes speed, not results.
session_part() {
    wanted "$1" || return 0
    rm -f "$RUN/t/crashes"
    many_tests "$1" sessions "$2" "$3"
    one_test "$1-crashes" nothing_crashed
}

# A background process that crashes may fail no test: each server's log was looked at when its test was over.
nothing_crashed() { [ ! -s "$RUN/t/crashes" ] || { cat "$RUN/t/crashes" && false; }; }

# pg_regress on a server with this line in its configuration, with arguments of make.
served() {
    local line=$1
    shift
    scripts/cluster.sh restart test 'max_prepared_transactions = 10' 'pgcache.expire_interval = 0' "$line"
    regress "$@"
}

discarding() {
    served '' REGRESS=install ISOLATION=
    scripts/cluster.sh psql test -q -c 'ALTER DATABASE contrib_regression SET debug_discard_caches = 1'
    regress REGRESS="${DISCARDING:-fetch attached}" ISOLATION= REGRESS_OPTS="--use-existing --dbname=contrib_regression --outputdir=$BUILD/regress-out"
}

# A part of pg_regress and the isolation tests: regress-NAME 'conf line' [arguments of make]
regress_part() {
    local name=$1
    wanted "$name" || return 0
    shift
    many_tests "$name" served "$@" ISOLATION=
    ! compgen -G "specs/*.spec" >/dev/null || many_tests "${name/regress/isolation}" served "$@" REGRESS=
}

lints() {
    one_test lint-pages scripts/lint.sh pages
    many_tests lint-sources scripts/lint.sh sources
    one_test lint-majors scripts/lint.sh majors
    if command -v dpkg >/dev/null; then
        one_test ways-to-rust scripts/rust-check.sh
    else
        absent+=("the ways to a Rust on Debian and Ubuntu, which need dpkg")
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        one_test lint-clippy scripts/lint.sh clippy
    else
        absent+=("clippy, which this Rust has not got")
    fi
}

# The tests of the store and of the protocol under Miri, which sees each access out of bounds, each data race and each reference that must
# not be. They do less there: Miri takes a hundred times as long.
miri() (
    export CARGO_TARGET_DIR=$ROOT/build/target-miri
    cargo +nightly miri setup && nice cargo +nightly miri test --locked --package pgcache-store --lib &&
        nice cargo +nightly miri test --locked --package pgcache-resp --lib --test requests
)

# Random commands to a Redis and to a model behind the protocol's crate; RESP_COMMANDS says how many.
against_redis() { cargo_test --package pgcache-resp --test differential -- --ignored; }

# What links with no Postgres.
unit_tests() {
    local crates
    read -r -a crates < <(pure_crates) || true
    [ ${#crates[@]} = 0 ] || many_tests unit cargo_test "${crates[@]}"

    if scripts/need.sh miri; then
        many_tests miri miri
    else
        absent+=("the tests of the store and of the protocol under Miri, which needs a nightly toolchain")
    fi
    if scripts/need.sh nightly; then
        one_test fuzz crates/store/fuzz/run 30
        one_test fuzz-protocol crates/resp/fuzz/run 15
    else
        absent+=("the fuzz targets, which need a nightly toolchain")
    fi
    if scripts/need.sh redis; then
        many_tests against-redis against_redis
    else
        absent+=("the protocol beside a Redis, which needs redis-server")
    fi
}

! wanted lint || lints
! wanted unit || unit_tests

must build nice make -s all PG_CONFIG="$PG_CONFIG"
must stage scripts/stage.sh
trap stop_cluster EXIT
stop_cluster
must cluster scripts/cluster.sh start test 'max_prepared_transactions = 10' 'pgcache.expire_interval = 0'
export_staged

regress_part regress ''
regress_part regress-over-plans "pgcache.table_path = 'plan'"
regress_part regress-without-preload "shared_preload_libraries = ''" REGRESS_TIER= ISOLATION_TIER=
# Of a Postgres with assertions (cassert.sh): each query that may runs in a parallel worker, and all that is cached of
# the catalogs is gone at each chance, as if another session had changed them. The latter makes a file take minutes.
regress_part regress-parallel "debug_parallel_query = 'regress'"
! wanted discarding || many_tests discarding discarding
session_part sessions 1 auto
session_part sessions-over-plans 1 plan
session_part sessions-without-preload 0 auto
! wanted storm || many_tests storm scripts/storm.sh 60

# The examples, the programs of docs/drivers.md, and others' software over attached tables. What is not here and cannot be
# had is named at the end.
examples() {
    local language languages=(python) shops=(python) attached=(cache_table.py)
    for language in node go ruby java php; do
        if ! scripts/need.sh "$language"; then
            absent+=("the programs in $language, which needs that language")
            continue
        fi
        languages+=("$language")
        [ ! -d "examples/$language" ] || shops+=("$language")
        [ "$language" != node ] || attached+=(sessions.js keyv.js)
    done
    software laravel laravel.php Laravel
    software symfony-cache symfony.php "Symfony's cache"
    many_tests examples scripts/examples.sh "${shops[@]}"
    many_tests drivers scripts/drivers.sh "${languages[@]}"
    many_tests attached scripts/attached.sh "${attached[@]}"
    if scripts/need.sh maven; then
        many_tests xa scripts/xa.sh
    else
        absent+=("global transactions by a transaction manager, which needs Maven")
    fi
}

# WHAT PROGRAM NAME
software() {
    if scripts/need.sh "$1"; then
        attached+=("$2")
    else
        absent+=("$3 over an attached table, which no package brings here")
    fi
}
! wanted examples || examples

# Clients of Redis, unchanged, beside a Redis. What is not here and cannot be had is named at the end.
clients() {
    local programs=(redis-cli redis-py django django-tests redis-rs)
    clients_of node 'the clients in node' node-redis node-redis-cached ioredis stores
    clients_of go 'the clients in go' go-redis rueidis rueidis-cached
    clients_of maven 'the clients in java, which need Maven' jedis spring
    clients_of redis-rb 'the client in ruby' redis-rb
    clients_of rails "Rails' cache" rails
    clients_of phpredis 'phpredis' phpredis
    clients_of predis 'Predis' predis
    ! [[ " ${programs[*]} " == *" phpredis predis "* ]] || clients_of laravel-redis "Laravel's cache" laravel
    many_tests clients scripts/clients.sh "${programs[@]}"
}

# WHAT NAME PROGRAM...
clients_of() {
    if scripts/need.sh "$1"; then
        programs+=("${@:3}")
    else
        absent+=("$2 before the door, which cannot be had here")
    fi
}
! wanted clients || clients

# The stores of frameworks, by the frameworks' own tests. What is not here and cannot be had is named at the end.
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
! wanted stores || stores

# Every workload of the benchmarks: that it runs and that its answers are right, no figures.
benchmarks() {
    local name
    many_tests bench-driver cargo_test --manifest-path bench/driver/Cargo.toml
    one_test bench-tests bench/run.sh tests
    for name in $(bench/run.sh names); do
        if [ "$name" = application ] && ! scripts/need.sh go; then
            absent+=("bench/run.sh application, which needs Go")
            continue
        fi
        one_test "bench-smoke-$name" bench/run.sh "$name" --smoke --out "$ROOT/build/bench/smoke/$name-$$"
    done
    rm -rf "$ROOT/build/bench/smoke"
    scripts/need.sh etcd || absent+=("etcd beside pgcache in bench/run.sh kv, which cannot be had here")
}
! wanted bench || benchmarks

finish
