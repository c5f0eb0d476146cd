#!/usr/bin/env bash
# Measures how long a shutdown and a start take with pgcache.save_memory: fills a tier with entries of one memory cache,
# stops and starts the server, and prints the logged times as a table.
#
# Usage: save-memory.sh [SIZE...]      default: 64MB 1GB
#
# Environment: PGCACHE_PROFILE (the library), BYTES of a value (default: 500).
. "$(dirname "$0")/../scripts/head.sh"
need server
cluster=save-memory bytes=${BYTES:-500}
trap 'scripts/cluster.sh remove $cluster' EXIT

sql() { scripts/cluster.sh psql $cluster -Atqc "$1"; }
# VERB: prints the last line of the log with this verb.
logged() { grep "pgcache $1" "$RUN/$cluster/log" | tail -n 1; }
milliseconds() { sed 's/.* in \([0-9]*\) ms$/\1/'; }

echo "| hot_size | entries | MB in the file | ms to save | ms to restore |"
echo "|---|---|---|---|---|"
[ $# -gt 0 ] || set -- 64MB 1GB
for size; do
    scripts/cluster.sh remove $cluster
    scripts/cluster.sh start $cluster "fsync = on" "pgcache.hot_size = '$size'" "pgcache.save_memory = on"
    sql "CREATE EXTENSION pgcache; SELECT cache_create('m', storage => 'memory')" >/dev/null
    # More than the tier can hold, so that it is full.
    sql "SELECT count(cache_set(md5(i::text), repeat('v', $bytes), cache => 'm'))
        FROM generate_series(1, pg_size_bytes('$size') / ($bytes + 100)) AS i" >/dev/null
    scripts/cluster.sh stop $cluster
    scripts/cluster.sh start $cluster
    restored=$(logged restored | sed 's/.* restored \([0-9]*\) of.*/\1/')
    megabytes=$(logged saved | sed 's/.*, \([0-9]*\) MB in.*/\1/')
    echo "| $size | $restored | $megabytes | $(logged saved | milliseconds) | $(logged restored | milliseconds) |"
done
