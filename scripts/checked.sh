# shellcheck shell=bash
# Sourced, before `need server`, by scripts that test on a Postgres with assertions: selects that Postgres, of the
# caller's major with PG=17, and the test build of the library, which checks itself.

unset PG_CONFIG
export PG=${PG:-18} PGCACHE_PROFILE=checked
export PG=${PG%-cassert}-cassert
