#!/usr/bin/env bash
# Runs checks that are not part of the tests, because each needs its own system, server or program. Each file in
# scripts/check is one check, which this script sources. The header of the file says what the check verifies.
#
# Usage: check.sh WHAT [ARGUMENT...]        `make WHAT-check` runs all but rust
#
#   binaries [ARCHIVE]     the archive of `make binaries`, on a clean system without a compiler
#   citus                  caches on a Postgres in which Citus is installed
#   deb [FILE]             the Debian package, on a clean system
#   docker [lint]          the files of docker/; without lint the image, too
#   fresh [SUITE]          `make demo` and `make test` on a clean system without Rust
#   postgres [attached]    the tests of Postgres itself, with pgcache and without, or over attached tables
#   rust                   how need.sh finds or installs Rust
#   upgrade                pg_upgrade, and dump and restore, to another major
. "$(dirname "$0")/head.sh"

what=${1:-}
[ -e "scripts/check/$what.sh" ] || die "usage: check.sh WHAT [ARGUMENT...], where WHAT is one of $(basename -as .sh scripts/check/* | paste -sd ' ')."
shift
# shellcheck source=/dev/null # shellcheck checks each file separately
. "scripts/check/$what.sh"
