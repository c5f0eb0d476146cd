#!/usr/bin/env bash
# Runs the tests of the stores, which are packages that keep an application framework's cache in pgcache. All use one
# cluster with a pooler in front of it, and each has its own database. Their packages go to the cache folder, not into
# the checkout.
#
# A store is a folder of stores/. Its file `needs` has words for need.sh. Its file `check.sh` is sourced here in a
# separate shell, in the store's folder, and calls:
#
#   one WHAT COMMAND...           runs a test; WHAT names its subject
#   in_way NAME WAY COMMAND...    runs the command with its own cache: WAY is the storage, the type, and direct or
#                                 pooled. The command finds STORE_CACHE, STORE_HOST and STORE_PORT, and `way` for WHAT
#   each_way NAME COMMAND...      the same once for each of `ways`
#   page_shows                    runs the function `page` of check.sh, which tests what README.md shows and ends at a
#                                 failure
#   block LANGUAGE NUMBER         prints the block of README.md
#   restart_server                breaks the store's connections
#   packages_of, build_go         as in languages.sh; `installed` is the folder that they install to
#
# check.sh may use PGHOST, PGPORT, PGUSER, PGDATABASE (a database with the extension and without a cache), PGHOST_TCP
# for programs that do not support unix sockets, and POOLED_HOST and POOLED_PORT for pgbouncer in transaction mode.
#
# Usage: stores.sh STORE...
. "$(dirname "$0")/head.sh"
[ $# -gt 0 ] || die "usage: stores.sh STORE..., folders of stores/."
wanted=()
for store in "$@"; do
    [ -e "stores/$store/check.sh" ] || die "there is no store $store."
    read -r -a words <"stores/$store/needs"
    wanted+=("${words[@]}")
done
need server pgbouncer "${wanted[@]}"
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
. scripts/pooler.sh
lock_packages

cluster=stores
work=$RUN/stores-run
patience=300
pool_size=4

stop_all() {
    stop_pooler
    scripts/cluster.sh remove $cluster >/dev/null 2>&1 || true
    rm -rf "$work"
}

# shellcheck disable=SC2317 # check.sh calls it
restart_server() {
    "$ROOT/scripts/cluster.sh" stop $cluster
    "$ROOT/scripts/cluster.sh" start $cluster 8>&-
}

# shellcheck disable=SC2317 # check.sh calls it
one() {
    local what=$1 from verdict=FAILED
    shift
    from=$(date +%s%3N)
    [ "$(type -t "$1")" = function ] || set -- timeout "$patience" "$@"
    if "$@" 8>&- >"$work/$store.log" 2>&1; then
        verdict=ok
    else
        tail -n 60 "$work/$store.log"
    fi
    echo "test stores/$store: $what ... $verdict $(($(date +%s%3N) - from)) ms"
    [ $verdict = ok ] || touch "$work/failed"
}

# Both types behind both storages, each directly and through the pooler.
ways=('unlogged bytea direct' 'unlogged bytea pooled' 'memory bytea direct' 'memory bytea pooled' 'unlogged text direct' 'memory text pooled')

# shellcheck disable=SC2034,SC2317 # as above, with `way`
in_way() {
    local storage type through way=${2// /, }
    read -r storage type through <<<"$2"
    export STORE_CACHE=$1_${2// /_} STORE_HOST=$PGHOST_TCP STORE_PORT=$PGPORT
    [ "$through" = direct ] || STORE_HOST=$POOLED_HOST STORE_PORT=$POOLED_PORT
    psql -X -q -o /dev/null -c "SET client_min_messages = warning" -c "SELECT cache_create('$STORE_CACHE', storage => '$storage', value_type => '$type', if_not_exists => true)"
    "${@:3}"
}

# shellcheck disable=SC2317
each_way() {
    local each
    for each in "${ways[@]}"; do
        in_way "$1" "$each" "${@:2}"
    done
}

# shellcheck disable=SC2317
block() {
    awk -v fence="\`\`\`$1" -v number="$2" '/^```/ { inside = ($0 == fence && ++seen == number); next } inside' "$ROOT/stores/$store/README.md"
}

# shellcheck disable=SC2317
page_shows() {
    export -f block page
    one 'what the page shows' bash -xeuo pipefail -c page
}

check() {
    local store=$1 status=0
    psql -X -q -c "CREATE DATABASE store_$store"
    psql -X -q -d "store_$store" -c 'CREATE EXTENSION pgcache'
    # Do not add `||` to this command, because bash would then ignore errexit in the function that it runs.
    set +e
    (
        set -e
        export PGDATABASE=store_$store PGHOST_TCP=127.0.0.1 POOLED_HOST=127.0.0.1 POOLED_PORT=$pooler_port
        export -f restart_server
        export ROOT cluster installed store work
        cd "stores/$store"
        # shellcheck source=/dev/null
        . ./check.sh
    )
    status=$?
    set -e
    [ $status = 0 ] || { echo "test stores/$store: its tests came to their end ... FAILED 0 ms" && touch "$work/failed"; }
}

trap stop_all EXIT
stop_all
mkdir -p "$work"
PGCACHE_PORT=$(free_port)
export PGCACHE_PORT
pooler_port=$(free_port)
scripts/cluster.sh start $cluster "listen_addresses = '127.0.0.1'" 8>&-
eval "$(scripts/cluster.sh env $cluster)"
start_pooler
for store in "$@"; do
    check "$store"
done
[ ! -e "$work/failed" ]
