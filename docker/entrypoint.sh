#!/bin/bash
# Starts the server of the image; makes its cluster when the volume is empty.
#
#   POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE   of the superuser; needed for the first start
#   POSTGRES_USER (postgres), POSTGRES_DB (the user's name), POSTGRES_INITDB_ARGS
#   PGCACHE_<NAME>    the setting pgcache.<name>, at every start: PGCACHE_HOT_SIZE=1GB
#   /initdb.d/        *.sql and *.sh, run once, in order, after the extensions were created
#
# Arguments go to postgres: `docker run IMAGE postgres -c shared_buffers=1GB`.
set -euo pipefail

fail() {
    printf 'pgcache: %s\n' "$*" >&2
    exit 1
}

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}

password() {
    if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then
        cat "$POSTGRES_PASSWORD_FILE"
    else
        printf '%s' "${POSTGRES_PASSWORD:-}"
    fi
}

# The socket is reachable only inside the container and as its user, because its folder is closed to others.
make_cluster() {
    local secret
    secret=$(password)
    [ -n "$secret" ] || fail 'the volume is empty and the superuser has no password: set POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE.'
    local -a arguments
    read -r -a arguments <<<"${POSTGRES_INITDB_ARGS:-}"
    initdb --username="$user" --pwfile=<(printf '%s\n' "$secret") --encoding=UTF8 --locale=C.UTF-8 \
        --auth-local=trust --auth-host=scram-sha-256 --data-checksums --no-instructions "${arguments[@]}"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "include 'pgcache.conf'" >>"$PGDATA/postgresql.conf"
}

quoted() { printf "'%s'" "${1//\'/\'\'}"; }

# Written anew at each start, so that the environment decides; the command line still wins.
write_settings() {
    local name
    {
        echo '# written at each start from the environment; change that, or postgresql.conf'
        echo "listen_addresses = '*'"
        echo "unix_socket_directories = '$PGHOST'"
        echo "shared_preload_libraries = 'pgcache,pg_cron'"
        echo "cron.database_name = $(quoted "$database")"
        echo "cron.host = '$PGHOST'"
        for name in $(compgen -e PGCACHE_ || true); do
            echo "pgcache.$(printf '%s' "${name#PGCACHE_}" | tr '[:upper:]' '[:lower:]') = $(quoted "${!name}")"
        done
    } >"$PGDATA/pgcache.conf"
}

sql() { psql -X -q -v ON_ERROR_STOP=1 --username="$user" "$@"; }

run_initdb_files() {
    local file
    for file in /initdb.d/*; do
        case $file in
            *.sql) sql --dbname="$database" --file="$file" ;;
            *.sh) bash "$file" ;;
        esac
    done
}

# A server without network makes the objects that every start needs. Its socket is elsewhere, so that no client takes
# it for the real one.
fill_cluster() {
    local first=$PGHOST/first
    mkdir -p "$first"
    pg_ctl start --silent --wait --options="-c listen_addresses='' -c unix_socket_directories=$first"
    export PGHOST=$first
    if [ "$database" != postgres ]; then
        sql --dbname=postgres --set=name="$database" <<<'CREATE DATABASE :"name"'
    fi
    sql --dbname="$database" --command='CREATE EXTENSION pgcache' --command='CREATE EXTENSION pg_cron'
    run_initdb_files
    pg_ctl stop --silent --wait --mode=fast
    export PGHOST=${first%/first}
}

# Half a cluster would pass for a whole one at the next start.
give_up() {
    pg_ctl stop --silent --mode=immediate >/dev/null 2>&1 || true
    find "$PGDATA" -mindepth 1 -delete
    fail 'the cluster could not be made and was removed again: see above.'
}

if [ "${1:-postgres}" != postgres ]; then
    exec "$@"
fi
[ "$(id -u)" != 0 ] || fail 'Postgres does not run as root: leave out --user, or name one that owns the volume.'
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    trap give_up EXIT
    make_cluster
    write_settings
    fill_cluster
    trap - EXIT
fi
write_settings
exec "$@"
