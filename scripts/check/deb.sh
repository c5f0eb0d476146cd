# shellcheck shell=bash
# Verifies that the Debian package is complete: on a clean base system it installs with its dependencies, the extension
# works with and without preload, survives a restart, and is removed without leftovers.
#
# Usage: check.sh deb [FILE]        environment: PG, PG_CONFIG as in the Makefile, for a package for this machine's
#                                   suite; or SUITE=trixie, for a package for that suite's Postgres, which is made
#                                   from HEAD in a base system of the suite. With FILE, checks that package and makes
#                                   none. Needs root.
. scripts/base.sh
. /etc/os-release

work_for deb-check 6000

# Print only the last line of `make deb`, which the caller needs, and keep the whole output in the log.
build_here() {
    need server
    file=$(scripts/deb.sh | tee >(cat >&2) | tail -n 1)
}

build_in_suite() {
    local root=$work/build
    make_base "$suite" bare git,make,sudo,ca-certificates
    unpack_base "$root"
    git bundle create "$root/srv/pgcache.bundle" HEAD 2>/dev/null
    enter_as_root "$root" <<'BUILD' || die "the package could not be built on $suite: see above."
set -euo pipefail
cd /srv
git -c advice.detachedHead=false -c init.defaultBranch=main clone -q pgcache.bundle pgcache
cd pgcache
make deb | tee >(cat >&2) | tail -n 1 >/srv/file
BUILD
    mkdir -p build/deb
    cp "$root$(cat "$root/srv/file")" build/deb/
    file=$PWD/build/deb/$(basename "$(cat "$root/srv/file")")
    rm -rf "$root"
}

suite=${SUITE:-$VERSION_CODENAME}
if [ -n "${1:-}" ]; then
    file=$(realpath "$1")
elif [ -n "${SUITE:-}" ]; then
    build_in_suite
else
    build_here
fi
major=${file##*/postgresql-}
major=${major%%-*}
make_base "$suite" slim ca-certificates

inside() {
    cat scripts/smoke.sh
    cat <<'INSIDE'
set -euo pipefail
major=$1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt-get update -q=2
apt-get install -q=2 -y --no-install-recommends /srv/pgcache.deb >/srv/apt.log 2>&1 || { tail -n 20 /srv/apt.log; exit 1; }
dpkg --verify "postgresql-$major-pgcache"

restart() { pg_ctlcluster "$major" main restart; }
settings=/etc/postgresql/$major/main/conf.d/pgcache.conf
pg_lsclusters -h | grep -q "^$major main " || pg_createcluster "$major" main >/dev/null
smoke "$settings" setpriv --reuid=postgres --regid=postgres --init-groups psql
rm "$settings"
pg_ctlcluster "$major" main stop

apt-get purge -q=2 -y "postgresql-$major-pgcache" >/dev/null 2>&1
left=$(find / -xdev -name '*pgcache*' ! -path '/srv/*' ! -path '/proc/*' ! -path '/tmp/*' 2>/dev/null || true)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
INSIDE
}

say "installing ${file##*/} on a clean $suite"
root=$work/root
unpack_base "$root"
cp "$file" "$root/srv/pgcache.deb"
enter_as_root "$root" "$major" < <(inside) ||
    die "the package ${file##*/} failed its smoke test: see above."
say "${file##*/} installs, works and goes on a clean $suite"
