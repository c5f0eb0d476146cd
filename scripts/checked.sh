# shellcheck shell=bash
# Sourced by what tests on a Postgres with assertions, before `need server`: picks that Postgres, the caller's major with
# PG=17, and builds the extension with every check that Rust has: for overflow, and for what the unsafe functions of
# its library ask of their callers. A pgcache.so of its own (build/pgNN-cassert): nothing else is built anew.

unset PG_CONFIG
export PG=${PG:-18}
export PG=${PG%-cassert}-cassert
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
    CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
