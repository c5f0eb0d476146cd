#!/usr/bin/env bash
# Runs the three workloads side by side: Redis with redis-benchmark, plain tables and pgcache with pgbench. Prints one
# table.
#
# Usage: run.sh [SCALE [SECONDS [CLIENTS]]]     1, 10 and 32; one round takes SECONDS, all rounds take five minutes
#
# Uses the server that psql connects to (PGHOST, PGPORT, PGUSER, PGDATABASE) and recreates the schema "bench" there.
# Starts a Redis on a socket, with default settings but without snapshots.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scale=${1:-1} seconds=${2:-10} clients=${3:-32}

by_pgbench() {
    pgbench -n -M prepared -D scale="$scale" -c "$clients" -j 2 -T "$seconds" -f "$1.sql" 2>"$work/log" |
        sed -n 's/^tps = \([0-9]*\).*/\1/p' | grep . || { cat "$work/log" >&2 && false; }
}

# RANGE COMMAND...: sends about as many requests as fit into the time; __rand_int__ is a number of 12 digits below
# RANGE.
by_redis_benchmark() {
    redis-benchmark -s "$work/socket" -c "$clients" -n $((100000 * seconds)) -r "$1" --csv "${@:2}" 2>"$work/log" |
        sed -n '$s/^"[^"]*","\([0-9]*\).*/\1/p'
}

row() { printf '%-36s %9s %9s %9s\n' "$@"; }

# LABEL READ WRITE MIXED: prints a row of the table. Writes run last, because they grow the tables.
rounds() {
    local read mixed write
    read=$(by_pgbench "$2") mixed=$(by_pgbench "$4") write=$(by_pgbench "$3")
    row "$1" "$read" "$write" "$mixed"
}

work=$(mktemp -d)
redis-server --port 0 --unixsocket "$work/socket" --dir "$work" --save '' >"$work/redis.log" &
redis=$!
trap 'kill "$redis" && wait "$redis" || true; rm -rf "$work"' EXIT
psql -X -q -v scale="$scale" -f setup.sql >"$work/log"
key=6f1d7a52-3c08-4b9e-a5d4- value=QfM0ZFNwGgQLrxTB78ZferwRZINJcGnzaO4eJ
entries=$(awk "BEGIN { print int(1000000 * $scale) }") slots=$((entries * 5 / 4))
seq 0 $((slots - 1)) | awk -v set="SET $key" -v value=$value '$1 % 5 { printf "%s%012d %s\r\n", set, $1, value }' |
    redis-cli -s "$work/socket" --pipe >"$work/log"

row 'requests/s' read write mixed
row Redis "$(by_redis_benchmark $slots GET ${key}__rand_int__)" "$(by_redis_benchmark $((entries * 10)) SET ${key}__rand_int__ $value)" -
rounds 'table, unlogged' select_by_key upsert mixed_table
rounds 'table, logged' select_by_key_logged upsert_logged mixed_table_logged
rounds 'pgcache, unlogged + hot tier' get_hot set_unlogged mixed_hot
rounds 'pgcache, unlogged, without the tier' get_table set_unlogged mixed_cache
rounds 'pgcache, memory' get_memory set_memory mixed_memory
rounds 'pgcache, logged' get_logged set_logged mixed_logged
echo 'redis-benchmark does not mix commands, and overwrites a tenth of the keys only when it begins.'
