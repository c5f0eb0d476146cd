#!/usr/bin/env bash
# The second part of `make demo`: shows the Redis protocol in the demo's cluster, with the same keys in redis-cli and in
# SQL.
#
# Usage: demo-door.sh        the cluster must run with pgcache.resp_socket = .../demo/door.sock
. "$(dirname "$0")/head.sh"
need server redis

door=$RUN/demo/door.sock
cache=public.door

# Shows a command and its output.
show() {
    echo "\$ ${*//$door/door.sock}"
    "$@"
    echo
}
sql() {
    printf '# %s\n' "$*"
    scripts/cluster.sh psql demo -q -P footer=off -c "$*"
}

await() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(redis-cli -s "$door" ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    die "nothing answers on $door."
}

await
scripts/cluster.sh psql demo -q -v ON_ERROR_STOP=1 <<SQL 2>/dev/null
CREATE EXTENSION IF NOT EXISTS pgcache;
SELECT cache_create('$cache', storage => 'memory', value_type => 'bytea', if_not_exists => true) \g /dev/null
SELECT cache_clear('$cache') \g /dev/null
SQL

show redis-cli -s "$door" SET greeting hello EX 60
sql "SELECT convert_from(cache_get_bytes('greeting', '$cache'), 'UTF8') AS value, cache_ttl('greeting', '$cache') > '0' AS lives"
sql "SELECT cache_set_bytes('greeting', 'good morning', '1 minute', '$cache')"
show redis-cli -s "$door" GET greeting
show redis-cli -s "$door" MSET cups:tea 2 cups:coffee 3
sql "SELECT p.product, p.price * convert_from(c.value, 'UTF8')::int AS total
    FROM (VALUES ('tea', 2.50), ('coffee', 3.20)) AS p (product, price) JOIN $cache AS c ON c.key = 'cups:' || p.product"
