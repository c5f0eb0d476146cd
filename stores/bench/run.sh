#!/usr/bin/env bash
# Compares the stores of Laravel, Symfony, Rails and Spring with their frameworks' stock Redis stores on one server:
# over SQL, and over the Redis protocol (docs/door.md), both by TCP. The number in brackets is relative to the stock
# store. One process, values of some 600 bytes, the best of seven alternating rounds. For Python see
# stores/python/bench.sh.
#
# Usage: stores/bench/run.sh [Laravel | Symfony | Rails | Spring]...
. "$(dirname "$0")/../../scripts/head.sh"
need server python php-tests rails-tests phpredis laravel-redis redis-rb maven
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
. stores/bench/door.sh
work=$RUN/stores-bench
cluster=stores-bench
lock_packages
trap stop_both_ways EXIT
stop_both_ways
mkdir -p "$work"
# Spring, with our classes before those that Maven installed.
packages_of stores-spring-bench stores/spring/bench/pom.xml stores/spring/bench/pom.xml -- sh -c \
    'rm -rf lib && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime'
STORE_CLASSES="$work/classes:$installed/stores-spring-bench/lib/*"
export STORE_CLASSES
javac -nowarn -d "$work/classes" -cp "$STORE_CLASSES" stores/spring/bench/*.java stores/spring/src/main/java/org/pgcache/spring/*.java
start_both_ways
export STORE_DOOR=127.0.0.1:$door STORE_DSN="pgsql:host=127.0.0.1;port=$PGPORT;dbname=postgres" \
    STORE_CONNINFO="host=127.0.0.1 port=$PGPORT dbname=postgres user=$PGUSER"
python3 stores/bench/run.py "$postmaster" "$@"
