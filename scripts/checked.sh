# shellcheck shell=bash
# Sourced by what tests on a Postgres with assertions, before `need server`: picks that Postgres, the caller's major with
# PG=17, and the library of the tests, which checks itself.

unset PG_CONFIG
export PG=${PG:-18} PGCACHE_PROFILE=checked
export PG=${PG%-cassert}-cassert
