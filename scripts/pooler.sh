# shellcheck shell=bash disable=SC2154 # `work` and `pooler_port` are the caller's
# Sourced by scripts that test with a pooler: starts pgbouncer in transaction mode in front of the cluster of the
# caller's environment, in the caller's folder `work`, on the caller's `pooler_port` and a unix socket in $work/pooler.
#
#   start_pooler, stop_pooler
#   alternates           waits until two statements of one client meet two sessions

# Uses two sessions for each database in turn, so that a statement never runs in the session of the previous statement.
start_pooler() {
    local program
    program=$(PATH=$PATH:/usr/sbin command -v pgbouncer)
    cat >"$work/pgbouncer.ini" <<INI
[databases]
* = host=$PGHOST port=$PGPORT user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $pooler_port
unix_socket_dir = $work/pooler
logfile = $work/pooler/log
pidfile = $work/pooler/pid
auth_type = any
pool_mode = transaction
default_pool_size = ${pool_size:-2}
server_round_robin = 1
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
INI
    mkdir -p "$work/pooler"
    [ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$work/pooler"
    # -d: runs as a daemon that writes its pid to a file, because a shell may be between this script and the process.
    as_server "$program" -q -d "$work/pgbouncer.ini" 8>&- >/dev/null 2>&1
}

alternates() {
    local tries sessions
    for tries in $(seq 50); do
        psql -X -q -c 'SELECT pg_sleep(0.2)' >/dev/null 2>&1 &
        psql -X -q -c 'SELECT pg_sleep(0.2)' >/dev/null 2>&1 || true
        wait $! || true
        sessions=$(psql -X -qAt -c 'SELECT pg_backend_pid()' -c 'SELECT pg_backend_pid()' 2>/dev/null | sort -u | wc -l) || true
        [ "$sessions" != 2 ] || return 0
    done
    die "the pooler gave one client the same session twice ($tries tries)."
}

stop_pooler() {
    local pid
    pid=$(as_server cat "$work/pooler/pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}
