#!/usr/bin/env bash
# Tests redis-cli, and redis-benchmark, which first sends CONFIG GET.
set -euo pipefail

cli() { redis-cli --no-auth-warning -u "$REDIS_URL" "$@" 2>&1; }

cli ping
cli set tea hot EX 60 NX
cli get tea
[ "$(cli ttl tea)" -gt 0 ]
cli -3 get nothing
printf '\000\377' | cli -x set bytes
cli --no-raw get bytes
cli mset a 1 b 2
cli mget a b c
cli incrby n 42
cli scan 0 count 100000 match t* | tail -n 1
printf 'set p 1\nincr p\nincr tea\nmulti\nincr p\nget p\nexec\n' | cli
cli --pipe <<<$'set many 1\r\nincr many\r' | tail -n 1
cli --scan --pattern '*' | sort
# shellcheck disable=SC2016 # a dollar of the protocol
printf '*1\r\n$6\r\nDBSIZE\r\n' | cli --pipe | tail -n 1
cli --json get tea
cli flushdb
cli dbsize

[[ $REDIS_URL =~ ^redis://((.*):(.*)@)?(.*):([0-9]+)/([0-9]+)$ ]]
user=${BASH_REMATCH[2]} password=${BASH_REMATCH[3]}
redis-benchmark -h "${BASH_REMATCH[4]}" -p "${BASH_REMATCH[5]}" --dbnum "${BASH_REMATCH[6]}" ${user:+--user "$user" -a "$password"} \
    -n 2000 -r 100 -P 8 -t ping,set,get,incr,mset --csv 2>&1 | cut -d, -f1
cli flushdb
