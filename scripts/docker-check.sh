#!/usr/bin/env bash
# Proves docker/ without a registry: its files pass their own tools, the image is built, refuses to start
# without a password, starts as its own user, is healthy, keeps its entries over a restart and runs the
# demo; a real exporter then has every metric that the alerts and the dashboard name.
#
# Not Docker itself: buildah reads the same Dockerfile, in a chroot, and the two images it starts from are
# made here, by debootstrap and with this machine's Rust.
#
# Usage: docker-check.sh [lint]     lint: only the files; the image needs root
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/say.sh
. scripts/base.sh

suite=trixie
image=localhost/pgcache:check
port=${PGCACHE_PORT:-54317}
cache=$(scripts/cache-dir.sh)

lint() {
    scripts/need.sh docker-lint
    local tools=$cache/tools/bin
    say "Dockerfile and scripts"
    "$tools/hadolint" docker/Dockerfile
    shellcheck docker/*.sh docker/exporter/*.sh
    say "compose file, alerts, dashboard"
    "$tools/check-jsonschema" --builtin-schema vendor.compose-spec docker/compose.yaml
    promtool check config docker/prometheus/prometheus.yml
    promtool test rules docker/prometheus/alerts_test.yml
    scripts/check-dashboard.py
}

lint
[ "${1:-}" != lint ] || exit 0

[ "$(id -u)" = 0 ] || die "the image is built in a chroot and needs root: run sudo -E make docker-check."
scripts/need.sh rust image
free_kb=$(df --output=avail -k "$cache" | tail -n 1)
[ "$free_kb" -gt 12000000 ] || die "docker-check needs 12 GB in $cache and $((free_kb / 1024)) MB are free: free some, or set PGCACHE_CACHE."

work=$(mktemp -d "$cache/docker-check.XXXXXX")
chmod 755 "$work"
# Plain copies: overlay mounts are not to be had everywhere.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
store() { buildah --root "$work/storage" --runroot "$work/run" "$@"; }

exporter='' container=''
clear_away() {
    [ -z "$exporter" ] || kill "$exporter" 2>/dev/null || true
    [ -z "$container" ] || stop_server 2>/dev/null || true
    store rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clear_away EXIT
trap 'exit 130' INT TERM

import() {
    local name=$1 folder=$2 from
    from=$(store from scratch)
    store add --quiet "$from" "$folder" / >/dev/null
    store commit --quiet "$from" "localhost/$name" >/dev/null
    store rm "$from" >/dev/null
}

import_bases() {
    make_base "$suite" slim ca-certificates
    mkdir "$work/root"
    tar -C "$work/root" -xf "$BASE"
    lend_network "$work/root"
    import base:check "$work/root"
    lend_rust "$work/root"
    import rust:check "$work/root"
    rm -rf "$work/root"
}

build_image() {
    # The OCI format knows no health check.
    store build --quiet --format docker --file docker/Dockerfile --tag "$image" --build-arg PG_MAJOR=17 \
        --build-arg BASE_IMAGE=localhost/base:check --build-arg RUST_IMAGE=localhost/rust:check . >/dev/null
}

# The network is the host's: only the loopback address, and a port of our own.
in_image() {
    store run --user 999 --volume "$PWD/demo:/demo:ro" \
        --volume "$PWD/docker/exporter/role.sh:/initdb.d/role.sh:ro" --env PGCACHE_HOT_SIZE=32MB \
        --env POSTGRES_PASSWORD="${password:-}" --env EXPORTER_PASSWORD=watching --env PGPORT="$port" \
        "$container" -- "$@"
}

start_server() {
    in_image entrypoint.sh postgres -c listen_addresses=127.0.0.1 -c fsync=off >>"$work/server.log" 2>&1 &
    local tries
    for tries in $(seq 120); do
        ! in_image healthy.sh 2>/dev/null || return 0
        sleep 1
    done
    tail -n 20 "$work/server.log" >&2
    die "the image was not healthy after $tries tries."
}

stop_server() { in_image pg_ctl stop --silent --wait --mode=fast; }

expect() {
    local wanted=$1 got
    got=$(in_image psql -X -A -t -q -U postgres -c "$2")
    [ "$got" = "$wanted" ] || die "in the image, $2 gave '$got', not '$wanted'."
}

try_image() {
    container=$(store from "$image")
    say "first start"
    ! password='' in_image entrypoint.sh postgres >"$work/refused.log" 2>&1 || die "the image started without a password."
    grep -q POSTGRES_PASSWORD "$work/refused.log" || die "the image does not say that POSTGRES_PASSWORD is missing: $(cat "$work/refused.log")"
    password="it's secret"
    start_server
    expect postgres "SELECT current_user"
    [ "$(in_image stat -c %u /var/lib/postgresql/data/postmaster.pid)" = 999 ] || die "the image does not run as its own user."
    expect t "SELECT size BETWEEN 32e6 AND 33554432 FROM pgcache.hot_tier"
    in_image psql -X -q -U postgres -c "SELECT cache_set('kept', 'yes')" >/dev/null
    PGPASSWORD="it's secret" psql -X -q -h 127.0.0.1 -p "$port" -U postgres -c 'SELECT 1' >/dev/null || die "the password does not open the image's server."
    ! PGPASSWORD=wrong psql -X -q -h 127.0.0.1 -p "$port" -U postgres -c 'SELECT 1' >/dev/null 2>&1 || die "the image's server takes any password."

    say "demo in the image"
    in_image psql -X -q -U postgres -c 'CREATE DATABASE demo'
    in_image psql -X -q -U postgres -d demo -v ON_ERROR_STOP=1 -f /demo/demo.sql >"$work/demo.log" 2>&1 || {
        tail -n 20 "$work/demo.log" >&2
        die "the demo failed in the image."
    }

    say "restart"
    stop_server
    start_server
    expect yes "SELECT cache_get('kept')"
    expect f "SELECT pg_catalog.pg_is_in_recovery()"
}

# Every metric that is asked for somewhere is there.
try_exporter() {
    say "exporter"
    DATA_SOURCE_NAME="postgresql://exporter:watching@127.0.0.1:$port/postgres?sslmode=disable" \
        prometheus-postgres-exporter --web.listen-address="127.0.0.1:$((port + 1))" \
        --extend.query-path=docker/exporter/queries.yml >"$work/exporter.log" 2>&1 &
    exporter=$!
    local tries
    for tries in $(seq 30); do
        python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' \
            "http://127.0.0.1:$((port + 1))/metrics" >"$work/metrics" 2>/dev/null && break
        sleep 1
    done
    scripts/check-dashboard.py "$work/metrics" || {
        tail -n 5 "$work/exporter.log" >&2
        die "after $tries tries the exporter lacks metrics: see above."
    }
}

say "base images"
import_bases
say "image (all of pgcache is compiled: some minutes)"
build_image
try_image
try_exporter
stop_server
container=
store images --format '{{.Name}} {{.Size}}' | grep pgcache
say "docker/ is sound"
