#!/usr/bin/env bash
# `make cassert`: regression, isolation and session tests on a Postgres that checks itself all along and overwrites
# what it has freed. Also with nothing cached of the catalogs for longer than it is used (debug_discard_caches), and
# with every query in a parallel worker that may be (debug_parallel_query).
#
# Environment: PG=17 for another major that has a source package; PARTS, WITHOUT and SESSIONS as in test.sh.
. "$(dirname "$0")/head.sh"
. scripts/checked.sh

export PARTS=${PARTS:-regress regress-over-plans regress-without-preload regress-parallel discarding sessions \
    sessions-over-plans sessions-without-preload}
exec scripts/test.sh
