#!/usr/bin/env bash
# Builds pg_cron for a Postgres that was built by postgres-source.sh, into the same folder: from the
# source package of a newer suite, or from a source tree named by PGCACHE_CRON_SOURCE.
#
# Usage: cron-source.sh 17 | 18-cassert
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"

[ $# = 1 ] || die "usage: cron-source.sh MAJOR or MAJOR-cassert"
name=$1
major=${name%-cassert}
cache=$("$here/cache-dir.sh")
pg_config=$cache/postgres-$name/bin/pg_config
source=$cache/cron-$name.build
log=$cache/cron-$name.log

umask 022
exec 9>"$cache/cron-$name.lock"
flock 9
[ ! -e "$("$pg_config" --pkglibdir)/pg_cron.so" ] || exit 0

if [ -n "${PGCACHE_CRON_SOURCE:-}" ]; then
    rm -rf "$source"
    cp -r "$PGCACHE_CRON_SOURCE" "$source"
else
    # What was packaged for a newer major fits older ones, too.
    "$here/source-package.sh" pg-cron "postgresql-($(seq -s '|' "$major" 19))-cron" "$source" ||
        die "pg_cron for Postgres $major could not be fetched: name a source tree of it with PGCACHE_CRON_SOURCE=."
fi

say "building pg_cron for Postgres $name (log: $log)"
(make -s -C "$source" with_llvm=no PG_CONFIG="$pg_config" &&
    make -s -C "$source" with_llvm=no PG_CONFIG="$pg_config" install) >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "pg_cron could not be built for Postgres $name: see $log."
}
rm -rf "$source"
