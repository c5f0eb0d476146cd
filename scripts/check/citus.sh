# shellcheck shell=bash
# Tests beside Citus (t/tests/citus.rs): a coordinator and two workers, on a Postgres in which Citus is installed.
# Installs no Citus.
#
# Usage: PG_CONFIG=/path/to/pg_config check.sh citus
need rust server
[ -e "$("$PG_CONFIG" --sharedir)/extension/citus.control" ] ||
    die "The Postgres of $PG_CONFIG has no Citus: install it there, or name another Postgres with PG_CONFIG=."
need_files 1024 'make citus-check'
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh

session_tests citus:: --ignored
