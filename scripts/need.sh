#!/usr/bin/env bash
# Makes sure that what a step needs is there: installs the Debian or Ubuntu packages that are missing,
# and only those. Nothing that a package brings may start or stay enabled: no cluster, no Redis.
# What it cannot mend it says in one sentence.
#
# Usage: need.sh rust|server|cron|redis|memcached|charts|lint|postgres-source|debootstrap|sqlsmith ...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo "$@"
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        sudo "$@"
    else
        die "packages are missing and neither root nor sudo is at hand; ask an administrator to run: apt-get install ${missing[*]}"
    fi
}

installed() { dpkg-query --show --showformat '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

# Packages start their services from their install scripts; policy-rc.d is Debian's way to say no.
# An existing policy is somebody's decision and stays.
forbid_services() {
    local policy=/usr/sbin/policy-rc.d clusters=/etc/postgresql-common/createcluster.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
        undo+=("$policy")
    fi
    as_root mkdir -p "$clusters"
    echo 'create_main_cluster = off' | as_root tee "$clusters/zz-pgcache.conf" >/dev/null
    undo+=("$clusters/zz-pgcache.conf")
}

allow_services() { [ ${#undo[@]} = 0 ] || as_root rm -f "${undo[@]}"; }

# Only for a service that came with our own installation: it must not start at the next boot either.
leave_disabled() {
    local service
    for service in redis-server memcached postgresql; do
        case " ${missing[*]} " in
            *" $service "* | *" $service-"*)
                as_root deb-systemd-helper disable "$service.service" >/dev/null 2>&1 || true
                as_root update-rc.d "$service" disable >/dev/null 2>&1 || true
                ;;
        esac
    done
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@"
}

packages() {
    local package
    missing=() undo=()
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "this system has no apt: install the counterparts of these Debian packages and try again: ${missing[*]}"

    local free_kb log progress
    free_kb=$(df --output=avail -k /usr | tail -n 1)
    [ "$free_kb" -gt 1500000 ] ||
        die "$((free_kb / 1024)) MB are free on the disk of /usr and 1.5 GB are needed to install ${missing[*]}: free some space."

    say "installing ${missing[*]}"
    log=$(mktemp)
    show_progress "$log" &
    progress=$!
    trap 'end_progress "$progress"; allow_services' EXIT
    forbid_services
    if ! apt_install "${missing[@]}" >"$log" 2>&1; then
        as_root apt-get update -q=2 >>"$log" 2>&1 || true
        apt_install "${missing[@]}" >>"$log" 2>&1 || {
            tail -n 15 "$log" >&2
            die "apt-get could not install ${missing[*]}: check the network and the package sources (log: $log)."
        }
    fi
    leave_disabled
    allow_services
    end_progress "$progress"
    trap - EXIT
    rm -f "$log"
}

pg_config_path() { "$here/pg-config.sh"; }

need_rust() {
    local version
    command -v cargo >/dev/null ||
        die "cargo is not on the PATH: install Rust 1.91 or newer (rustup toolchain install stable)."
    version=$(cargo --version | sed 's/^cargo \([0-9]*\.[0-9]*\).*/\1/')
    # pgrx 0.18 does not build with 1.88, and does with 1.91; Debian 13's own is 1.85.
    [ "$(printf '%s\n1.91\n' "$version" | sort -V | head -n 1)" = 1.91 ] ||
        die "cargo $version is too old: Rust 1.91 or newer is needed (rustup update stable)."
    packages build-essential pkg-config libclang-dev
}

# The server, its headers and pg_regress, for the pg_config that pg-config.sh names.
need_server() {
    local config major
    config=$(pg_config_path)
    case $config in
        /usr/lib/postgresql/*/bin/pg_config)
            major=${config#/usr/lib/postgresql/}
            major=${major%%/*}
            packages "postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major"
            ;;
        "$("$here/cache-dir.sh")"/postgres-*)
            major=${config%/bin/pg_config}
            "$here/postgres-source.sh" "${major##*/postgres-}"
            ;;
    esac
    if [ "$(id -u)" = 0 ] && ! id postgres >/dev/null 2>&1 && ! id pgcache >/dev/null 2>&1; then
        useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin pgcache
    fi
    [ -x "$config" ] || die "$config does not exist: name the pg_config of a Postgres 15 to 18 with PG_CONFIG=."
    [ -e "$("$config" --includedir-server)/postgres.h" ] ||
        die "$config has no server headers beside it: install the development package of that Postgres."
    [ -x "$("$config" --bindir)/postgres" ] ||
        die "there is no server in $("$config" --bindir): install the server package of that Postgres."
}

need_cron() {
    local config major
    config=$(pg_config_path)
    [ -e "$("$config" --pkglibdir)/pg_cron.so" ] && return 0
    major=$("$config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
    case $config in
        /usr/lib/postgresql/*) packages "postgresql-$major-cron" ;;
        "$("$here/cache-dir.sh")"/postgres-*) "$here/cron-source.sh" "$major" ;;
    esac
    [ -e "$("$config" --pkglibdir)/pg_cron.so" ] ||
        die "pg_cron is not in $("$config" --pkglibdir): install it for that Postgres."
}

need_redis() {
    command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null && return 0
    packages redis-server redis-tools
}

need_memcached() { command -v memcached >/dev/null || packages memcached; }

need_charts() {
    python3 -c 'import matplotlib' 2>/dev/null && return 0
    packages python3-matplotlib
}

need_python() { command -v python3 >/dev/null || packages python3; }

need_lint() {
    command -v shellcheck >/dev/null || packages shellcheck
    cargo fmt --version >/dev/null 2>&1 || packages rustfmt
    cargo clippy --version >/dev/null 2>&1 || packages rust-clippy
}

need_postgres-source() { packages build-essential dpkg-dev bison flex perl pkg-config zlib1g-dev; }

need_debootstrap() { packages debootstrap; }

need_sqlsmith() { packages sqlsmith; }

for what in "$@"; do
    declare -F "need_$what" >/dev/null || die "need.sh knows no '$what'."
    "need_$what"
done
