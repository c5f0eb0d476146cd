# shellcheck shell=bash
# Runs the tests with Citus (t/tests/citus.rs), on a coordinator and two workers. The Postgres must have Citus
# installed; this script does not install it.
#
# Usage: PG_CONFIG=/path/to/pg_config check.sh citus
need rust server
[ -e "$("$PG_CONFIG" --sharedir)/extension/citus.control" ] ||
    die "The Postgres of $PG_CONFIG has no Citus: install it there, or name another Postgres with PG_CONFIG=."
need_files 1024 'make citus-check'
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh

session_tests citus:: --ignored
