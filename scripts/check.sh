#!/usr/bin/env bash
# Runs checks that are not part of the tests, because each needs a system, a server or a program of its own.
# scripts/check has a file for each, which is sourced here and describes what it proves.
#
# Usage: check.sh WHAT [ARGUMENT...]        `make WHAT-check` runs all but rust
#
#   binaries [ARCHIVE]     the archive of `make binaries`, on a clean system without a compiler
#   citus                  caches on a Postgres in which Citus is installed
#   deb [FILE]             the Debian package, on a clean system
#   docker [lint]          the files of docker/; without lint the image, too
#   fresh [SUITE]          `make demo` and `make test` on a clean system without Rust
#   postgres [attached]    the tests of Postgres itself, with pgcache and without, or over attached tables
#   rust                   the ways of need.sh to a Rust
#   upgrade                pg_upgrade, and dump and restore, to another major
. "$(dirname "$0")/head.sh"

what=${1:-}
[ -e "scripts/check/$what.sh" ] || die "usage: check.sh WHAT [ARGUMENT...], where WHAT is one of $(basename -as .sh scripts/check/* | paste -sd ' ')."
shift
# shellcheck source=/dev/null # each is checked as a file of its own
. "scripts/check/$what.sh"
