# shellcheck shell=bash
# Verifies that an upgrade to another Postgres major works. Stages pgcache for both servers, upgrades a cluster with
# caches of every kind with pg_upgrade (`--check`, then copies and links) and with dump and restore, and checks the
# contents on the new server (t/tests/upgrade.rs, t/tests/dump.rs).
#
# Environment: FROM=15 TO=17 for other majors; either may be the path of a pg_config. The new server must not have been
# released before the old server, because it would not know what a minor release has added to the catalogs.
from=${FROM:-15} to=${TO:-17}

# MAJOR or PG_CONFIG: stages pgcache for this server.
stage() {
    unset PG PG_CONFIG
    if [[ $1 == */* ]]; then export PG_CONFIG=$1; else export PG=$1; fi
    need rust server
    say "pgcache for $("$PG_CONFIG" --version)"
    scripts/stage.sh
}

tests() { PGCACHE_BINDIR_2=$new PGCACHE_PRELOAD=1 session_tests --ignored "$@"; }

stage "$to"
new=$BINDIR
stage "$from"
versions="$("$BINDIR/postgres" --version) to $("$new/postgres" --version)"
say "without pgcache, from $versions"
tests servers_agree >"$LOG/upgrade-control.log" 2>&1 ||
    die "these servers cannot upgrade a table of anybody's, from $versions: is the new one an older minor release? (log: $LOG/upgrade-control.log)"
say "with pgcache"
tests another_version upgrade::
