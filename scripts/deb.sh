#!/usr/bin/env bash
# `make deb`: builds a binary package postgresql-NN-pgcache for this machine's distribution with the files in debian/.
# The last line of the output names the package.
#
# Environment: PG, PG_CONFIG as in the Makefile; the Postgres must come from a package itself.
. "$(dirname "$0")/head.sh"
need rust server deb

server=$(readlink -f "$("$PG_CONFIG" --bindir)/postgres")
[ "$(dpkg-query --search "$server" 2>/dev/null | cut -d: -f1)" = "postgresql-$PG_MAJOR" ] ||
    die "$PG_CONFIG belongs to no package, so no package can depend on it: choose another with PG= or PG_CONFIG=."
# dpkg-buildpackage sets the last variable by debian/control. Without it, debhelper requires root.
export PG_SUPPORTED_VERSIONS=$PG_MAJOR PGCACHE_DEB=$BUILD DEB_RULES_REQUIRES_ROOT=no

pack() {
    rm -f "$BUILD"/*.deb &&
        pg_buildext updatecontrol &&
        debian/rules binary &&
        debian/rules clean &&
        rm debian/control
}

step build nice make -s all PG_CONFIG="$PG_CONFIG"
step deb pack
echo "$BUILD"/*.deb
