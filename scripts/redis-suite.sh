#!/usr/bin/env bash
# `make redis-suite`: runs the Tcl test suites of Redis and of Valkey against a server of pgcache, over memory caches
# and over tables. The suites come from the distribution's source packages into the cache folder (cache-dir.sh), not
# into the checkout.
#
# t/redis-suite/units names the files of each suite. t/redis-suite/left-out lists files and tests that are not run, each
# with the sentence of docs/door.md that explains the difference. The run fails if a test that is not listed fails, if
# the page lacks a sentence, if a suite lacks a listed test, or if a suite has a file that neither list names.
#
# Usage: redis-suite.sh [SUITE-STORAGE...]     redis-memory redis-table valkey-memory valkey-table; all if none is named
#
# Environment: ONLY=unit/type/incr for one file.
export PGCACHE_PROFILE=${PGCACHE_PROFILE:-checked}
. "$(dirname "$0")/head.sh"
[ $# -gt 0 ] || set -- redis-memory redis-table valkey-memory valkey-table
need server tcl
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh

lists=t/redis-suite
cache=$(scripts/cache-dir.sh)/redis-suite
work=$RUN/redis-suites
cluster=redis-suite
databases=16
# The number of seconds after which a unit counts as hanging and is ended.
patience=900

fetch() {
    exec 9>"$cache/$1.lock"
    flock 9
    [ -e "$cache/$1/.complete" ] || {
        scripts/source-package.sh "$1" "$1-server" "$cache/$1"
        touch "$cache/$1/.complete"
    }
    exec 9>&-
}

# shellcheck disable=SC2016 # Tcl's variables
# SUITE: makes a copy without the FUNCTION FLUSH before each file of tests, which continues if CONFIG SET does not know
# a setting.
copy_suite() {
    local program
    rm -rf "${work:?}/$1"
    mkdir -p "$work/$1"
    cp -r "$cache/$1/tests" "$cache/$1/runtest" "$work/$1/"
    # The suite of Valkey looks for the programs of its build, although the tests use an external server.
    mkdir -p "$work/$1/src"
    for program in server sentinel cli benchmark check-aof check-rdb; do ln -s /bin/false "$work/$1/src/$1-$program"; done
    sed -i -e '/^ *r function flush$/d' -e 's/^\( *\)r config set \$param \$val$/\1catch {r config set $param $val}/' \
        "$work/$1/tests/support/server.tcl"
}

start_door() {
    local storage=$1 caches='' number
    for ((number = 0; number < databases; number++)); do caches+="${caches:+,}public.d$number"; done
    door_port=$(free_port)
    scripts/cluster.sh start $cluster "pgcache.resp_port = $door_port" "pgcache.resp_caches = '$caches'" \
        "pgcache.resp_default_role = 'suite'" 'pgcache.resp_max_request = 64MB' 'pgcache.hot_size = 512MB' \
        'pgcache.hot_max_value = 16MB' 'pgcache.expire_interval = 200ms' >/dev/null
    eval "$(scripts/cluster.sh env $cluster)"
    psql -X -q -v ON_ERROR_STOP=1 >/dev/null 2>&1 <<SQL
CREATE EXTENSION IF NOT EXISTS pgcache;
CREATE ROLE suite LOGIN SUPERUSER;
SELECT cache_create('public.d' || i, storage => '$storage', value_type => 'bytea') FROM generate_series(0, $databases - 1) AS i;
SQL
}

stop_all() { scripts/cluster.sh remove $cluster >/dev/null 2>&1 || true; }

# SUITE STORAGE FILE: prints the lines of a list for this suite and this storage, without these two columns.
lines_for() { awk -F '\t' -v suite="$1" -v storage="$2" 'BEGIN { OFS = "\t" }
    /^#/ || !NF { next }
    ($1 == suite || $1 == "both") && ($2 == storage || $2 == "both") { print $3, $4 }' "$3"; }

# Checks that the page contains every sentence of the list.
check_sentences() {
    local page wrong=0 sentence
    page=$(tr -s '\n ' ' ' <docs/door.md)
    while IFS= read -r sentence; do
        [[ $page == *"$sentence"* ]] || { say "docs/door.md does not say: $sentence" && wrong=1; }
    done < <(awk -F '\t' '!/^#/ && $4 { print $4 }' $lists/left-out $lists/units | sort -u)
    return $wrong
}

# SUITE STORAGE: checks that the lists name exactly the suite's test files.
check_units() {
    diff <(lines_for "$1" "$2" $lists/units | cut -f 1 | sort) \
        <(cd "$cache/$1/tests" && find unit -name '*.tcl' -not -path '*/moduleapi/*' -not -path '*/cluster/*' -not -name '*-common.tcl' |
            sed 's/\.tcl$//' | sort) || { say "$lists/units does not name the files of the suite of $1" && return 1; }
}

# SUITE STORAGE
run_suite() {
    local suite=$1 storage=$2 log=$LOG/redis-suite-$1-$2.log units=() unit failed passed left
    check_units "$suite" "$storage" || return
    copy_suite "$suite"
    : >"$work/unknown"
    start_door "$([ "$storage" = memory ] && echo memory || echo unlogged)"
    lines_for "$suite" "$storage" $lists/left-out >"$work/left"
    cut -f 1 "$work/left" >"$work/skip"
    for unit in ${ONLY:-$(lines_for "$suite" "$storage" $lists/units | awk -F '\t' '!$2 { print $1 }')}; do units+=(--single "$unit"); done
    (cd "$work/$suite" && timeout $patience tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$door_port" \
        --durable --timeout 120 --no-latency --ignore-encoding --ignore-digest --skipfile "$work/skip" --verbose \
        --tags '-needs:debug -needs:repl -needs:config-maxmemory -needs:save -needs:reset -needs:pfdebug -large-memory -slow -external:skip -cluster' \
        "${units[@]}") >"$log" 2>&1 || true
    stop_all
    sed -i 's/\x1b\[[0-9;]*m//g' "$log"
    passed=$(grep -c '^\[ok\]' "$log" || true)
    # The suite reports a failed test as soon as it fails, and an error outside a test in the summary.
    sed -nE -e 's/^\[err\]: (.*) in tests\/[^ ]*$/\1/p' -e 's/^\[TIMEOUT\].*/timeout/p' \
        -e 's/^\[exception\]: (.*)/\1/p' "$log" | sort -u >"$work/failed"
    failed=$(wc -l <"$work/failed")
    left=$(grep -c '^\[skip\]' "$log" || true)
    echo "$suite over $storage: $passed passed, $failed failed, $left left out (log: $log)"
    sed 's/^/    /' "$work/failed"
    [ -n "${ONLY:-}" ] || sed -n 's/^\[skip\]: //p' "$log" | sort -u | comm -13 - <(sort -u "$work/skip") >"$work/unknown"
    sed 's/^/    in the list, and not in the suite: /' "$work/unknown"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ] && ! [ -s "$work/unknown" ]
}

mkdir -p "$cache" "$work"
trap stop_all EXIT
stop_all
check_sentences || exit 1
bad=0
for run in "$@"; do
    fetch "${run%-*}"
    run_suite "${run%-*}" "${run#*-}" || bad=1
done
exit $bad
