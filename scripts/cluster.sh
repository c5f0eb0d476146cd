#!/usr/bin/env bash
# Manages throwaway clusters that run the staged server. Each has a folder in the run folder, with data, log and unix
# socket. A cluster listens on TCP only if a conf line says so. A cluster is stopped only by its own pid file.
#
# Usage: cluster.sh start NAME ['conf line' ...]   creates it if it does not exist; later lines win
#        cluster.sh restart NAME ['conf line' ...] keeps its lines if none are given
#        cluster.sh stop NAME | remove NAME
#        cluster.sh psql NAME [psql arguments]
#        cluster.sh env NAME                       PGHOST and so on, for eval
#
# Environment: PGCACHE_POSTGRES=program runs this program in place of the server (valgrind.sh).
set -euo pipefail
. "$(dirname "$0")/env.sh"

[ $# -ge 2 ] || die "usage: cluster.sh start|restart|stop|remove|psql|env NAME [...]"
verb=$1 name=$2
shift 2
dir=$RUN/$name
data=$dir/data
port=${PGCACHE_PORT:-54$PG_MAJOR}

# Prints the pid of the server in this folder. If the server was killed, its pid may now belong to another process,
# which pg_ctl would mistake for the server and stop. So `running` also checks the process's folder.
server_pid() { as_server head -n 1 "$data/postmaster.pid" 2>/dev/null; }
running() {
    local pid
    pid=$(server_pid) && as_server test "/proc/$pid/cwd" -ef "$data"
}

make_cluster() {
    [ -x "$BINDIR/initdb" ] || die "the server is not staged yet: run scripts/stage.sh first."
    need_room "$RUN" 1000 "a cluster"
    mkdir -p "$dir"
    [ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$dir"
    as_server "$BINDIR/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync \
        --no-instructions >"$LOG/initdb-$name.log" 2>&1 || {
        tail -n 5 "$LOG/initdb-$name.log" >&2
        die "initdb failed for the cluster $name: see $LOG/initdb-$name.log."
    }
    echo "include 'pgcache.conf'" | as_server tee -a "$data/postgresql.conf" >/dev/null
}

# Writes the configuration. Throwaway data needs no fsync. pg_cron connects as superuser through the socket.
configure() {
    {
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '$dir'"
        echo "unix_socket_permissions = 0700"
        echo "fsync = off"
        echo "shared_preload_libraries = 'pgcache'"
        if [ -e "$STAGE$("$PG_CONFIG" --pkglibdir)/pg_cron.so" ]; then
            echo "shared_preload_libraries = 'pgcache,pg_cron'"
            echo "cron.database_name = 'postgres'"
            echo "cron.host = '$dir'"
        fi
        [ $# = 0 ] || printf '%s\n' "$@"
    } | as_server tee "$data/pgcache.conf" >/dev/null
}

start() {
    [ -e "$data/PG_VERSION" ] || as_server test -e "$data/PG_VERSION" || make_cluster
    running && return 0
    # Remove the pid file of a dead server, because Postgres does not start while any process has the pid in the file.
    ! as_server kill -0 "$(server_pid)" 2>/dev/null || as_server rm -f "$data/postmaster.pid"
    if ! as_server test -e "$data/pgcache.conf" || [ $# -gt 0 ]; then
        configure "$@"
    fi
    as_server "$BINDIR/pg_ctl" start -s -w -D "$data" -l "$dir/log" -o "-p $port" -p "${PGCACHE_POSTGRES:-$BINDIR/postgres}" >&2 || {
        if as_server tail -n 20 "$dir/log" | grep -q 'Address already in use'; then
            die "port $port is in use: choose another one with PGCACHE_PORT=."
        fi
        as_server tail -n 15 "$dir/log" >&2
        die "the cluster $name did not start: see $dir/log."
    }
}

stop() {
    if running; then
        as_server "$BINDIR/pg_ctl" stop -s -w -m fast -D "$data"
    fi
}

case $verb in
    start) start "$@" ;;
    restart) stop && start "$@" ;;
    stop) stop ;;
    remove) stop && rm -rf "$dir" ;;
    psql) exec "$BINDIR/psql" -X -h "$dir" -p "$port" -U postgres "$@" ;;
    env) printf 'export PGHOST=%q PGPORT=%q PGUSER=postgres PGDATABASE=postgres PATH=%q:%s\n' "$dir" "$port" "$BINDIR" "\$PATH" ;;
    *) die "cluster.sh knows no '$verb'." ;;
esac
