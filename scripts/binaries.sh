#!/usr/bin/env bash
# `make binaries`: makes an archive with pgcache built for several Postgres majors. binaries/install.sh installs it on a
# system without Rust and a compiler. The last line of the output names the archive; the file with its checksum is
# beside it.
#
# A library runs with the glibc version that it was built with, and with newer versions. So an archive that is built on
# an older system runs on more systems. The archive records its glibc version. The script checks that no library needs a
# newer glibc than PROMISED.
#
# Environment: MAJORS="15 16 17 18 19"
. "$(dirname "$0")/head.sh"
unset PG PG_CONFIG
promised=2.34 # Debian 12, Ubuntu 22.04, RHEL 9

version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" pgcache.control)
name=pgcache-$version-linux-$(uname -m)
work=build/binaries/$name
rm -rf "$work"
mkdir -p "$work/extension"

# Prints the newest version of glibc that a library needs.
glibc_of() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1; }

newer() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]; }

build_for() (
    export PG=$1
    need rust server
    step "build-for-$PG" nice make -s all PG_CONFIG="$PG_CONFIG"
    mkdir "$work/$PG"
    install -m 755 "$BUILD/pgcache.so" "$work/$PG/pgcache.so"
    strip --strip-unneeded "$work/$PG/pgcache.so"
)

needed=0
for major in ${MAJORS:-15 16 17 18 19}; do
    build_for "$major"
    glibc=$(glibc_of "$work/$major/pgcache.so")
    if newer "$glibc" "$promised"; then
        die "the library for Postgres $major needs glibc $glibc and $promised is promised: build it on an older system."
    fi
    if newer "$glibc" "$needed"; then needed=$glibc; fi
done
cp pgcache.control sql/pgcache--*.sql "$work/extension/"
cp binaries/install.sh binaries/README LICENSE "$work/"
echo "$needed" >"$work/glibc"
uname -m >"$work/machine"
(cd "$work" && find . -type f -printf '%P\n' | sort | xargs sha256sum) >build/binaries/SHA256SUMS
mv build/binaries/SHA256SUMS "$work/"

# Makes the archive reproducible: the same commit and compiler give the same bytes.
when=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pgcache.control)
tar --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner -C build/binaries -cf - "$name" | gzip -9 -n >"build/$name.tar.gz"
(cd build && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
rm -rf build/binaries
echo "build/$name.tar.gz"
