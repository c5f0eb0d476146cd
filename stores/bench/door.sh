# shellcheck shell=bash disable=SC2034,SC2154 # the script that sources it sets work and cluster, and reads postmaster
# Starts a server for the stores' benchmarks, which source this file. The server runs in the folder `work`, as
# `cluster`, and is reached by TCP over SQL and over the Redis protocol. It has a cache `unlogged`, a cache `memory`,
# and the cache of the Redis protocol.
#
#      start_both_ways      sets `door`, a port, and `postmaster`, its process
#      stop_both_ways       stops the server; for a trap

stop_both_ways() {
    scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true
    rm -rf "$work"
}

start_both_ways() {
    door=$(free_port)
    PGCACHE_PORT=$(free_port)
    export PGCACHE_PORT
    printf 'local all all trust\nhost all all 127.0.0.1/32 trust\n' >"$work/pg_hba.conf"
    scripts/cluster.sh start "$cluster" "pgcache.resp_port = $door" "pgcache.resp_default_role = 'guest'" \
        "hba_file = '$work/pg_hba.conf'" "listen_addresses = '127.0.0.1'" 8>&-
    eval "$(scripts/cluster.sh env "$cluster")"
    export PGDATABASE=postgres
    psql -X -q -v ON_ERROR_STOP=1 >/dev/null <<'SQL'
CREATE EXTENSION pgcache;
CREATE ROLE guest LOGIN;
GRANT SELECT, INSERT, UPDATE, DELETE ON pgcache.resp TO guest;
SELECT cache_create('unlogged', value_type => 'bytea'), cache_create('memory', value_type => 'bytea', storage => 'memory');
SQL
    postmaster=$(psql -X -qAtc "SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)")
}
