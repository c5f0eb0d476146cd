#!/usr/bin/env bash
# `make deb`: a binary package postgresql-NN-pgcache for this machine's distribution, from what
# `make install DESTDIR=` lays down. The last line names the file.
#
# Environment: PG, PG_CONFIG as in the Makefile; the Postgres must come from a package itself.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh rust server deb
. scripts/env.sh
. scripts/step.sh
. /etc/os-release

[ "$(dpkg-query --search "$(readlink -f "$("$PG_CONFIG" --bindir)/postgres")" 2>/dev/null | cut -d: -f1)" = "postgresql-$PG_MAJOR" ] ||
    die "$PG_CONFIG belongs to no package, so no package can depend on it: choose another with PG= or PG_CONFIG=."

package=postgresql-$PG_MAJOR-pgcache
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" pgcache.control)-1~$ID$VERSION_ID
architecture=$(dpkg --print-architecture)
work=$BUILD/deb
tree=$work/tree
file=$BUILD/${package}_${version}_$architecture.deb
# The time of the last commit: the same source gives the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pgcache.control)}
export SOURCE_DATE_EPOCH

lay_down() {
    rm -rf "$work" &&
        make -s install DESTDIR="$tree" PG_CONFIG="$PG_CONFIG" &&
        strip --strip-unneeded "$tree$("$PG_CONFIG" --pkglibdir)/pgcache.so" &&
        documents "$tree/usr/share/doc/$package"
}

documents() {
    install -D -m 0644 LICENSE "$1/copyright" &&
        install -m 0644 README.md "$1/README.md" &&
        install -D -m 0644 -t "$1/docs" docs/*.md &&
        changelog | gzip -9 -n >"$1/changelog.Debian.gz" &&
        gzip -9 -n <CHANGELOG.md >"$1/changelog.gz"
}

maintainer='The pgcache developers <pgcache@localhost>'

changelog() {
    printf '%s (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
        "$package" "$version" "$maintainer" "$(LC_ALL=C date --utc --date="@$SOURCE_DATE_EPOCH" -R)"
}

# dpkg-shlibdeps looks for a source package around it.
libraries() (
    mkdir -p "$work/debian"
    printf 'Source: pgcache\nPackage: %s\nArchitecture: any\n' "$package" >"$work/debian/control"
    cd "$work"
    dpkg-shlibdeps -O "$tree$("$PG_CONFIG" --pkglibdir)/pgcache.so" 2>/dev/null | sed -n 's/^shlibs:Depends=//p'
)

control() {
    cat <<CONTROL
Package: $package
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: database
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: postgresql-$PG_MAJOR, $(libraries)
Suggests: postgresql-$PG_MAJOR-cron
Description: cache with TTLs that lives in Postgres $PG_MAJOR
 Keys, values and a time to live in tables that transactions, joins, grants and
 backups understand, with a coherent hot tier in shared memory, and caches that
 live in memory alone.
 .
 The hot tier needs pgcache in shared_preload_libraries.
CONTROL
}

pack() {
    local text
    text=$(control) &&
        mkdir -p "$tree/DEBIAN" &&
        printf '%s\n' "$text" >"$tree/DEBIAN/control" &&
        find "$tree" -type d -exec chmod 0755 {} + &&
        (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums) &&
        find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} + &&
        dpkg-deb --root-owner-group --build "$tree" "$file"
}

step build nice make -s all PG_CONFIG="$PG_CONFIG"
step deb-tree lay_down
step deb pack
rm -rf "$work"
echo "$file"
