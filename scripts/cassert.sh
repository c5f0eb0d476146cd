#!/usr/bin/env bash
# `make cassert`: runs the regression, isolation and session tests on a Postgres with assertions that also overwrites
# freed memory. A second run discards catalog caches whenever possible (debug_discard_caches). A third run executes
# every query in a parallel worker if Postgres can (debug_parallel_query).
#
# Environment: PG=17 for another major that has a source package; PARTS, WITHOUT and SESSIONS as in test.sh.
. "$(dirname "$0")/head.sh"
. scripts/checked.sh

export PARTS=${PARTS:-regress regress-over-plans regress-without-preload regress-parallel discarding sessions \
    sessions-over-plans sessions-without-preload}
exec scripts/test.sh
