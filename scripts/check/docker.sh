# shellcheck shell=bash
# Tests docker/ without a registry. The files must pass their linters. The image must build, refuse to start without a
# password, start as its own user, be healthy, take its settings from the environment, sweep, run pg_cron's job and the
# demo, and keep its entries over a restart. Then a real exporter must export every metric that the alerts and the
# dashboard name. With the rules in docker/, a real Prometheus must report that the server is down.
#
# Does not use Docker: buildah reads the same Dockerfile, in a chroot, and debootstrap makes the base image.
#
# Usage: check.sh docker [lint]     lint: only the files; the image needs root
. scripts/base.sh

suite=trixie
image=localhost/pgcache:check
port=${PGCACHE_PORT:-54317}
cache=$(scripts/cache-dir.sh)

lint() {
    need docker-lint
    PATH=$PATH:$cache/tools/bin
    say "Dockerfile and scripts"
    hadolint docker/Dockerfile
    shellcheck docker/*.sh docker/exporter/*.sh
    say "compose file, alerts, dashboard"
    check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml
    promtool check config docker/prometheus/prometheus.yml
    promtool test rules docker/prometheus/alerts_test.yml
    scripts/check-dashboard.py
}

lint
[ "${1:-}" != lint ] || exit 0

work_for docker-check 12000
need image
# Uses plain copies, because overlay mounts do not work everywhere.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
store() { buildah --root "$work/storage" --runroot "$work/run" "$@"; }

watchers=() container=''
clear_away() {
    [ ${#watchers[@]} = 0 ] || kill "${watchers[@]}" 2>/dev/null || true
    [ -z "$container" ] || stop_server 2>/dev/null || true
    store rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
import_base() {
    local from
    make_base "$suite" slim ca-certificates
    unpack_base "$work/root"
    from=$(store from scratch)
    store add --quiet "$from" "$work/root" / >/dev/null
    store commit --quiet "$from" localhost/base:check >/dev/null
    store rm "$from" >/dev/null
    rm -rf "$work/root"
}

build_image() {
    # The OCI format has no health check, so use Docker's format.
    store build --quiet --format docker --file docker/Dockerfile --tag "$image" --build-arg PG_MAJOR=17 \
        --build-arg BASE_IMAGE=localhost/base:check . >/dev/null
}

# The container shares the host's network, so use only the loopback address, and a free port.
in_image() {
    store run --user 999 --volume "$PWD/demo:/demo:ro" \
        --volume "$PWD/docker/exporter/role.sh:/initdb.d/role.sh:ro" --env PGCACHE_HOT_SIZE=32MB --env PGCACHE_EXPIRE_INTERVAL=1s \
        --env POSTGRES_PASSWORD="${password:-}" --env EXPORTER_PASSWORD=watching --env PGPORT="$port" \
        "$container" -- "$@"
}

wait_until() {
    local what=$1 tries
    shift
    for tries in $(seq 120); do
        ! "$@" || return 0
        sleep 1
    done
    die "not after $tries tries: $what."
}

start_server() {
    in_image entrypoint.sh postgres -c listen_addresses=127.0.0.1 -c fsync=off >>"$work/server.log" 2>&1 &
    wait_until "the image is healthy (log: $cache/docker-check.log)" healthy
}

healthy() {
    cp "$work/server.log" "$cache/docker-check.log"
    in_image healthy.sh 2>/dev/null
}

stop_server() { in_image pg_ctl stop --silent --wait --mode=fast; }

sql() { in_image psql -X -A -t -q -U postgres -c "$1"; }
holds() { [ "$(sql "SELECT $1")" = t ]; }
login() { PGPASSWORD=$1 psql -X -q -h 127.0.0.1 -p "$port" -U postgres -c 'SELECT 1' >/dev/null 2>&1; }

expect() {
    local wanted=$1 got
    got=$(sql "$2")
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
    expect 1s "SHOW pgcache.expire_interval"
    sql "SELECT cache_set('kept', 'yes')" >/dev/null
    login "$password" || die "the password does not open the image's server."
    ! login wrong || die "the image's server takes any password."

    say "demo in the image"
    sql 'CREATE DATABASE demo'
    in_image psql -X -q -U postgres -d demo -v ON_ERROR_STOP=1 -f /demo/demo.sql >"$work/demo.log" 2>&1 || {
        tail -n 20 "$work/demo.log" >&2
        die "the demo failed in the image."
    }

    say "sweeps: the worker's, then pg_cron's"
    sql "INSERT INTO pgcache.main VALUES ('old', 'x', '2020-01-01')"
    wait_until "the worker removes an expired row" holds "NOT EXISTS (SELECT FROM pgcache.main WHERE key = 'old')"
    sql "SELECT cache_schedule_expiry('1 second')"
    wait_until "pg_cron has run its job" holds "EXISTS (SELECT FROM cron.job_run_details WHERE status = 'succeeded')"
    ! holds "EXISTS (SELECT FROM cron.job_run_details WHERE status = 'failed')" || die "a job of pg_cron failed."
    sql "SELECT cache_schedule_expiry(NULL)"

    say "restart"
    stop_server
    start_server
    expect yes "SELECT cache_get('kept')"
    expect f "SELECT pg_catalog.pg_is_in_recovery()"
}

# Checks that every metric that a dashboard or an alert reads exists.
try_exporter() {
    say "exporter"
    DATA_SOURCE_NAME="postgresql://exporter:watching@127.0.0.1:$port/postgres?sslmode=disable" \
        prometheus-postgres-exporter --web.listen-address="127.0.0.1:$((port + 1))" \
        --extend.query-path=docker/exporter/queries.yml >"$work/exporter.log" 2>&1 &
    watchers+=($!)
    wait_until "the exporter answers" metrics
    scripts/check-dashboard.py "$work/metrics" || {
        tail -n 5 "$work/exporter.log" >&2
        die "the exporter lacks metrics: see above."
    }
}

page() { python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' "$1" 2>/dev/null; }

metrics() { page "http://127.0.0.1:$((port + 1))/metrics" >"$work/metrics"; }

# Uses the configuration and the rules unchanged, except the exporter's address and the waiting times.
try_prometheus() {
    say "Prometheus"
    mkdir "$work/prometheus"
    sed -e "s/exporter:9187/127.0.0.1:$((port + 1))/" -e 's/: 15s$/: 1s/' docker/prometheus/prometheus.yml >"$work/prometheus/prometheus.yml"
    sed 's/^\( *for:\) .*/\1 3s/' docker/prometheus/alerts.yml >"$work/prometheus/alerts.yml"
    prometheus --config.file="$work/prometheus/prometheus.yml" --storage.tsdb.path="$work/prometheus/data" \
        --web.listen-address="127.0.0.1:$((port + 2))" >"$work/prometheus.log" 2>&1 &
    watchers+=($!)
    wait_until "Prometheus reaches the exporter" asks targets '"health":"up"'
    wait_until "Prometheus has looked at the rules" asks rules '"name":"PgcacheDown".*"health":"ok"'
    ! asks targets '"health":"down"' || die "a target of Prometheus is down."
    sleep 6
    ! asks alerts '"alertname":"PgcacheDown"' || die "PgcacheDown fires while the server is up."
    stop_server
    container=
    wait_until "PgcacheDown fires" asks alerts '"alertname":"PgcacheDown"[^}]*},"annotations":{[^}]*},"state":"firing"'
}

asks() { page "http://127.0.0.1:$((port + 2))/api/v1/$1" | grep -q "$2"; }

say "base image"
import_base
say "image (all of pgcache is compiled: some minutes)"
build_image
try_image
try_exporter
try_prometheus
store images --format '{{.Name}} {{.Size}}' | grep pgcache
say "docker/ is sound"
