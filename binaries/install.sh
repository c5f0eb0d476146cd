#!/bin/sh
# Installs pgcache from this archive into a Postgres 15 to 19 on Linux. Needs no compiler; needs the right to write where
# that Postgres keeps its extensions (sudo).
#
# Usage: install.sh [/path/to/pg_config]        environment: DESTDIR=... for a staged tree
set -eu
cd "$(dirname "$0")"

die() {
    printf 'pgcache: %s\n' "$*" >&2
    exit 1
}

# The one that is named, or on the PATH, or the only one where packages put it.
find_pg_config() {
    if [ -n "${1:-${PG_CONFIG:-}}" ]; then
        echo "${1:-$PG_CONFIG}"
        return
    fi
    set --
    for program in /usr/lib/postgresql/*/bin/pg_config /usr/pgsql-*/bin/pg_config; do
        [ ! -x "$program" ] || set -- "$@" "$program"
    done
    case $# in
        0) command -v pg_config || die "no pg_config was found: name that of your Postgres, ./install.sh /path/to/pg_config" ;;
        1) echo "$1" ;;
        *) die "there is more than one Postgres ($*): name one, ./install.sh $1" ;;
    esac
}

pg_config=$(find_pg_config "${1:-}")
version=$("$pg_config" --version) || die "$pg_config does not run: name the pg_config of your Postgres."
major=$(echo "$version" | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
[ -e "$major/pgcache.so" ] || die "this archive has nothing for $version, only for $(echo [0-9]*/ | tr -d /)."

needed=$(cat glibc)
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //') || true
[ -n "$glibc" ] || die "this archive is for Linux with glibc $needed or newer, and there is no glibc here: build from source."
[ "$(printf '%s\n%s\n' "$needed" "$glibc" | sort -V | head -n 1)" = "$needed" ] ||
    die "this archive needs glibc $needed or newer and here is $glibc: build from source."
[ "$(cat machine)" = "$(uname -m)" ] || die "this archive is for $(cat machine) and this machine is $(uname -m)."
sha256sum --check --quiet SHA256SUMS || die "a file of this archive is not as it was packed: fetch it again."

libraries=${DESTDIR:-}$("$pg_config" --pkglibdir)
extensions=${DESTDIR:-}$("$pg_config" --sharedir)/extension
mkdir -p "$libraries" "$extensions" 2>/dev/null || true
if [ ! -w "$libraries" ] || [ ! -w "$extensions" ]; then
    die "$libraries or $extensions is not yours to write: run it with sudo."
fi

# A server may have the old library open: a new file beside it takes its name, and the old one lives until it is closed.
cp "$major/pgcache.so" "$libraries/pgcache.so.new"
chmod 755 "$libraries/pgcache.so.new"
mv "$libraries/pgcache.so.new" "$libraries/pgcache.so"
cp extension/pgcache--*.sql extension/pgcache.control "$extensions/"
chmod 644 "$extensions"/pgcache--*.sql "$extensions/pgcache.control"

cat <<END
pgcache is installed for $version. In each database, as a superuser:
    CREATE EXTENSION pgcache;                  -- or, after an older version: ALTER EXTENSION pgcache UPDATE;
For the hot tier and memory caches, in postgresql.conf, and then restart the server:
    shared_preload_libraries = 'pgcache'
END
