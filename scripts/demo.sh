#!/usr/bin/env bash
# `make demo`: builds pgcache and demonstrates it in a throwaway cluster: first a cache in psql, then a comparison of
# speed with Redis.
. "$(dirname "$0")/head.sh"
need rust python server cron redis

build_and_stage

stop_cluster() { scripts/cluster.sh stop demo >/dev/null 2>&1 || true; }
trap stop_cluster EXIT
step cluster scripts/cluster.sh start demo "pgcache.resp_socket = '$RUN/demo/door.sock'" "pgcache.resp_default_role = 'postgres'" \
    "pgcache.resp_caches = 'public.door'"

say "pgcache in psql (demo/demo.sql)"
scripts/cluster.sh psql demo -q -c 'DROP DATABASE IF EXISTS demo' -c 'CREATE DATABASE demo' 2>/dev/null
scripts/cluster.sh psql demo -d demo -v ON_ERROR_STOP=1 -q -f demo/demo.sql

say "the same entries by the Redis protocol (docs/door.md)"
scripts/demo-door.sh
stop_cluster

say "a race with Redis, about a minute"
export_staged
bench/run.sh workloads --quick --no-charts --tools driver \
    --systems redis,table_unlogged,pgcache_hot,pgcache_memory,resp_memory,resp_unlogged

say "to look around: scripts/cluster.sh start demo && scripts/cluster.sh psql demo -d demo; make clean removes it all"
