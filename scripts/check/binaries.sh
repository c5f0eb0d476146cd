# shellcheck shell=bash
# Verifies that the archive of `make binaries` is complete: on a clean base system with Postgres but without Rust and a
# compiler, its checksums match, install.sh installs it, and the extension works without preload, with preload, and
# after a restart. If install.sh refuses to install, it must say why.
#
# Usage: check.sh binaries [ARCHIVE]        environment: SUITE=bookworm or trixie, with whose Postgres it is tested,
#                                           with all other majors that the archive has and this machine can have;
#                                           MAJORS="15 16 17 18 19" to make the archive. Needs root.
. scripts/base.sh
. /etc/os-release

work_for binaries-check
suite=${SUITE:-$VERSION_CODENAME}
archive=${1:-$(scripts/binaries.sh | tee >(cat >&2) | tail -n 1)}
(cd "$(dirname "$archive")" && sha256sum --check --quiet "$(basename "$archive").sha256") || die "$archive is not what its checksum says."
make_base "$suite" slim ca-certificates

inside() {
    cat scripts/smoke.sh
    cat <<'INSIDE'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
unpacked=$(echo /srv/pgcache-*/)

refuses() {
    local words=$1
    shift
    ! "$@" >/tmp/refused 2>&1 || { echo "not refused: $*"; exit 1; }
    grep -q "$words" /tmp/refused || { echo "$* says $(cat /tmp/refused), and not '$words'"; exit 1; }
}

install_server() {
    mkdir -p /etc/postgresql-common/createcluster.d
    echo 'create_main_cluster = off' >/etc/postgresql-common/createcluster.d/none.conf
    sh /srv/packages.sh "$1" >/srv/apt.log 2>&1 || { tail -n 20 /srv/apt.log; exit 1; }
    ! command -v cc cargo || { echo "this system has a compiler and would prove nothing."; exit 1; }
}

refusals() {
    local config=$1
    refuses 'does not run' "$unpacked/install.sh" /nowhere/pg_config
    printf '#!/bin/sh\necho PostgreSQL 14.2\n' >/tmp/pg_config
    chmod 755 /tmp/pg_config
    refuses 'nothing for PostgreSQL 14.2, only for' "$unpacked/install.sh" /tmp/pg_config
    refuses 'run it with sudo' setpriv --reuid=nobody --regid=nogroup --clear-groups "$unpacked/install.sh" "$config"
    cp -r "$unpacked" /tmp/broken
    echo '-- one more line' >>/tmp/broken/extension/pgcache.control
    refuses 'not as it was packed' /tmp/broken/install.sh "$config"
    echo 9.99 >/tmp/broken/glibc
    refuses 'needs glibc 9.99' /tmp/broken/install.sh "$config"
    rm -r /tmp/broken
}

try() {
    local config=$1 folder=/tmp/try
    bindir=$("$config" --bindir)
    rm -rf "$folder"
    install -d -o postgres -g postgres "$folder"
    as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups env PGHOST="$folder" PGDATABASE=postgres)
    "${as_postgres[@]}" "$bindir/initdb" --pgdata="$folder/data" --auth=trust >/dev/null
    echo "unix_socket_directories = '$folder'" >>"$folder/data/postgresql.conf"
    smoke "$folder/data/postgresql.conf" "${as_postgres[@]}" "$bindir/psql" -U postgres
    "${as_postgres[@]}" "$bindir/pg_ctl" stop --silent --pgdata="$folder/data"
    echo "$("$config" --version): works"
}

restart() { (cd / && "${as_postgres[@]}" "$bindir/pg_ctl" restart --silent --wait --pgdata="$folder/data" --log="$folder/log" -o "-c listen_addresses=''" 2>/dev/null); }

refuses 'no pg_config was found' "$unpacked/install.sh"
install_server postgresql
config=$(echo /usr/lib/postgresql/*/bin/pg_config)
refusals "$config"
# install.sh finds the only Postgres by itself.
"$unpacked/install.sh"
try "$config"

# The other majors come from packages, or are built from source.
for server in "$@"; do
    config=$server
    if [[ $server != */* ]]; then
        config=/usr/lib/postgresql/$server/bin/pg_config
        [ ! -x "$config" ] || continue
        install_server "postgresql-$server"
    fi
    "$unpacked/install.sh" "$config"
    try "$config"
done
INSIDE
}

say "the archive ${archive##*/} on a clean $suite"
root=$work/root
unpack_base "$root"
tar -C "$root/srv" -xzf "$archive"
cp docker/packages.sh "$root/srv/"
servers=()
for major in $(find "$root"/srv/pgcache-*/ -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort -n); do
    config=$(unset PG_CONFIG && PG=$major scripts/pg-config.sh)
    prefix=${config%/bin/pg_config}
    if [[ $config == "$(scripts/cache-dir.sh)"/* && -x $config ]]; then
        mkdir -p "$root${prefix%/*}"
        cp -r "$prefix" "$root$prefix"
        servers+=("$config")
    elif [ -n "$(apt-cache --quiet=2 show "postgresql-$major" 2>/dev/null)" ]; then
        servers+=("$major")
    else
        say "not tried with Postgres $major, which cannot be had here"
    fi
done
enter_as_root "$root" ${servers[@]+"${servers[@]}"} < <(inside) ||
    die "the archive ${archive##*/} failed its smoke test: see above."
say "${archive##*/} installs and works on a clean $suite"
