#!/usr/bin/env bash
# Proves that the Debian package is enough: on a clean base system of this machine's suite it installs
# with what it depends on, the extension works with and without preload, survives a restart, and goes
# without a trace.
#
# Usage: deb-check.sh        environment: PG, PG_CONFIG as in the Makefile; needs root
. "$(dirname "$0")/head.sh"
. scripts/base.sh
. /etc/os-release

work_for deb-check
need server
file=$(scripts/deb.sh | tee >(cat >&2) | tail -n 1)
make_base "$VERSION_CODENAME" slim ca-certificates

inside() {
    cat <<'INSIDE'
set -euo pipefail
major=$1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt-get update -q=2
apt-get install -q=2 -y --no-install-recommends /srv/pgcache.deb >/srv/apt.log 2>&1 || { tail -n 20 /srv/apt.log; exit 1; }
dpkg --verify "postgresql-$major-pgcache"

sql() { setpriv --reuid=postgres --regid=postgres --init-groups psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
expect() {
    local wanted=$1 got
    got=$(sql -c "$2")
    [ "$got" = "$wanted" ] || { echo "$2 gave '$got', not '$wanted'"; exit 1; }
}

pg_lsclusters -h | grep -q "^$major main " || pg_createcluster "$major" main >/dev/null
pg_ctlcluster "$major" main restart
sql -c 'CREATE EXTENSION pgcache'
sql -c "SELECT cache_set('a', 'table')"
expect table "SELECT cache_get('a')"
expect 0 "SELECT size FROM pgcache.hot_tier"

echo "shared_preload_libraries = 'pgcache'" >>"/etc/postgresql/$major/main/conf.d/pgcache.conf"
pg_ctlcluster "$major" main restart
expect table "SELECT cache_get('a')"
expect t "SELECT size > 0 FROM pgcache.hot_tier"
sql -c "SELECT cache_create('m', storage => 'memory')" -c "SELECT cache_set('b', 'memory', cache => 'm')"
expect memory "SELECT cache_get('b', 'm')"
expect 0 "SELECT count(*) FROM pgcache.verify('pgcache.main')"
sql -c 'DROP EXTENSION pgcache CASCADE' 2>/dev/null
rm "/etc/postgresql/$major/main/conf.d/pgcache.conf"
pg_ctlcluster "$major" main stop

apt-get purge -q=2 -y "postgresql-$major-pgcache" >/dev/null 2>&1
left=$(find / -xdev -name '*pgcache*' ! -path '/srv/*' ! -path '/proc/*' ! -path '/tmp/*' 2>/dev/null || true)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
INSIDE
}

say "installing ${file##*/} on a clean $VERSION_CODENAME"
root=$work/root
unpack_base "$root"
cp "$file" "$root/srv/pgcache.deb"
inside >"$root/srv/inside.sh"
enter "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash /srv/inside.sh "$PG_MAJOR" ||
    die "the package ${file##*/} failed its smoke test: see above."
say "${file##*/} installs, works and goes on a clean $VERSION_CODENAME"
