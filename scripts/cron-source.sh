#!/usr/bin/env bash
# Builds pg_cron for a Postgres that postgres-source.sh has built, into the same folder. The source comes from the
# source package of a newer suite, or from a source tree named by PGCACHE_CRON_SOURCE.
#
# Usage: cron-source.sh 17 | 18-cassert
. "$(dirname "$0")/head.sh"

[ $# = 1 ] || die "usage: cron-source.sh MAJOR or MAJOR-cassert"
name=$1
cache=$(scripts/cache-dir.sh)
pg_config=$cache/postgres-$name/bin/pg_config
work=$cache/cron-$name.build
log=$cache/cron-$name.log

umask 022
exec 9>"$cache/cron-$name.lock"
flock 9
[ ! -e "$("$pg_config" --pkglibdir)/pg_cron.so" ] || exit 0

rm -rf "$work"
if [ -n "${PGCACHE_CRON_SOURCE:-}" ]; then
    cp -r "$PGCACHE_CRON_SOURCE" "$work"
else
    # A package for a newer major also fits older majors.
    scripts/source-package.sh pg-cron "postgresql-($(seq -s '|' "${name%-cassert}" 20))-cron" "$work" ||
        die "pg_cron for Postgres $name could not be fetched: name a source tree of it with PGCACHE_CRON_SOURCE=."
fi

say "building pg_cron for Postgres $name (log: $log)"
make -s -C "$work" with_llvm=no PG_CONFIG="$pg_config" all install >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "pg_cron could not be built for Postgres $name: see $log."
}
rm -rf "$work"
