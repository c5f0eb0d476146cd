#!/usr/bin/env bash
# The last part of `make demo`: the door in the demo's cluster. The same key by redis-cli and by SQL, then
# redis-benchmark on the door and on Redis in turn, both over unix sockets, and how they compare.
#
# Usage: demo-door.sh        the cluster runs with pgcache.resp_socket = .../demo/door.sock
. "$(dirname "$0")/head.sh"
need server redis

folder=$RUN/demo
door=$folder/door.sock
cache=public.door
rounds=3

# Shows a command, and what comes of it.
show() {
    echo "\$ ${*//$door/door.sock}"
    "$@"
    echo
}
sql() {
    printf '# %s\n' "$*"
    scripts/cluster.sh psql demo -q -P footer=off -c "$*"
}

start_redis() {
    redis=$folder/redis.sock
    redis-server --port 0 --unixsocket "$redis" --save '' --dir "$folder" >"$LOG/demo-redis.log" &
    redis_pid=$!
    trap 'kill "$redis_pid" 2>/dev/null || true; wait "$redis_pid" || true' EXIT
}

# SOCKET
await() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(redis-cli -s "$1" ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    die "nothing answers on $1."
}

# SOCKET DEPTH REQUESTS: "command rate" for each.
measure() {
    redis-benchmark -s "$1" -c 50 -P "$2" -n "$3" -r 10000 -d 100 -t set,get --csv 2>/dev/null |
        awk -F'"' 'NR > 1 { print $2, $4 }'
}

# In turn, so that whatever else the machine does meets both.
measure_both() {
    local round
    for ((round = 0; round < rounds; round++)); do
        measure "$redis" "$@" | sed 's/^/redis /'
        measure "$door" "$@" | sed 's/^/door /'
    done
}

# DEPTH TITLE: reads what measure_both prints, shows medians and their ratio.
compare() {
    sort -k1,2 -k3,3n | awk -v title="$1" '
        { rates[$1, $2, ++count[$1, $2]] = $3; commands[$2] }
        function median(who, what) { return rates[who, what, int((count[who, what] + 1) / 2)] }
        END {
            for (command in commands) {
                if (!median("redis", command) || !median("door", command)) exit 1
                printf "%-4s %-26s %9d %9d   %.2f\n", command, title, median("redis", command), median("door", command), median("door", command) / median("redis", command)
            }
        }' | sort
}

await "$door"
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

start_redis
await "$redis"
version=$(redis-cli -s "$redis" INFO server | tr -d '\r' | sed -n 's/^redis_version://p')
echo "requests/s by redis-benchmark, 50 clients, values of 100 bytes; medians of $rounds runs, in turn"
printf '%-31s %9s %9s   %s\n' '' "Redis $version" 'the door' 'the door over Redis'
measure_both 1 30000 | compare 'one at a time'
measure_both 16 200000 | compare 'pipelines of 16'
