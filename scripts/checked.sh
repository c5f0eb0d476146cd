# shellcheck shell=bash
# Sourced, before `need server`, by scripts that test on a Postgres with assertions. Selects that Postgres (PG=17
# chooses the major), and the test build of the library, which checks itself.

unset PG_CONFIG
export PG=${PG:-18} PGCACHE_PROFILE=checked
export PG=${PG%-cassert}-cassert
