#!/usr/bin/env bash
# Proves the way to another major of Postgres: pgcache is staged for both servers, a cluster with caches of
# every kind goes from one to the other by pg_upgrade (`--check`, then for real, by copies and by links) and
# by dump and restore, and everything is looked at on the new server (t/tests/upgrade.rs, t/tests/dump.rs).
#
# Environment: FROM=15 TO=17 for other majors; either may be the path of a pg_config. The new server must not
# have been released before the old one: what a minor release adds to the catalogs it does not know.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/say.sh

from=${FROM:-15} to=${TO:-17}

# Points what follows at a major, or at a pg_config.
choose() {
    unset PG PG_CONFIG
    case $1 in
        */*) export PG_CONFIG=$1 ;;
        *) export PG=$1 ;;
    esac
}

# All majors get their minor releases on one day; these came in November 2025.
age() {
    local major minor
    IFS=. read -r major minor < <("$BINDIR/postgres" --version | sed 's/^[^0-9]*\([0-9.]*\).*/\1/')
    case $major in
        15) echo $((minor - 15)) ;;
        16) echo $((minor - 11)) ;;
        17) echo $((minor - 7)) ;;
        18) echo $((minor - 1)) ;;
        *) echo 0 ;;
    esac
}

stage() {
    choose "$1"
    scripts/need.sh rust server
    . scripts/env.sh
    say "pgcache for $("$PG_CONFIG" --version)"
    scripts/stage.sh
}

stage "$to"
new=$BINDIR new_age=$(age)
stage "$from"
[ "$(age)" -le "$new_age" ] ||
    die "the new server is an older minor release than $("$PG_CONFIG" --version), and pg_upgrade could not take over any table: update it, or choose others with FROM= and TO=."

mkdir -p "$RUN/t"
[ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$RUN/t"
say "from $from to $to"
PGCACHE_BINDIR=$BINDIR PGCACHE_BINDIR_2=$new PGCACHE_RUN=$RUN/t PGCACHE_SERVER_USER=$SERVER_USER PGCACHE_PRELOAD=1 \
    CARGO_TARGET_DIR=$ROOT/build/target nice cargo test --locked --package pgcache-tests --test sessions -- \
    --ignored another_version upgrade::
