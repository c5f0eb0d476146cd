#!/usr/bin/env bash
# Runs a command as an ordinary user of this machine, in a copy of this checkout in the user's home. The user may open
# 1,024 files, has no sudo, and gets only Rust and the settings of package managers from root. Creates the user (called
# tester) if it does not exist. need.sh must have installed the packages that the command needs.
#
# Usage, as root: as-user.sh COMMAND...        environment: AS_USER=name; the rest is passed on
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/say.sh

[ "$(id -u)" = 0 ] || die "as-user.sh becomes another user and needs root."
[ $# -gt 0 ] || die "usage: as-user.sh COMMAND..."
umask 022

user=${AS_USER:-tester}
id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
home=$(getent passwd "$user" | cut -d: -f6)
here=$home/pgcache
mine=${HOME%/}
PATH=$(scripts/rust-path.sh)

# Copies the checkout, Git's folder included. Keeps the build folder of an earlier run, so that the second run is
# faster.
copy_checkout() {
    mkdir -p "$here"
    find "$here" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    tar --exclude=./build --exclude=./target -cf - . | tar -C "$here" -xf -
}

# Copies the settings of package managers, which may be needed to reach the network, and the packages that they have
# fetched.
copy_settings() {
    local name
    for name in .cargo/config.toml .cargo/config .cargo/registry .npmrc .config/pip .pip .config/go .gemrc .gitconfig; do
        [ -e "$mine/$name" ] || continue
        rm -rf "${home:?}/$name"
        mkdir -p "$(dirname "$home/$name")"
        cp -r "$mine/$name" "$home/$name"
    done
}

# Copies a toolchain without its manual, which is the largest part.
copy_toolchain() {
    local from=$1 to=$2
    [ ! -e "$to/bin/rustc" ] || ! cmp -s "$from/bin/rustc" "$to/bin/rustc" || return 0
    rm -rf "$to"
    mkdir -p "$to"
    tar -C "$from" --exclude=./share -cf - . | tar -C "$to" -xf -
}

# Copies Rust, unless the user may run it where it is, such as a distribution's Rust, whose folder may be /usr.
copy_rust() {
    local sysroot
    sysroot=$(rustc --print sysroot)
    if as_them test -x "$sysroot/bin/rustc"; then
        rm -rf "${home:?}/rust"
    else
        copy_toolchain "$sysroot" "$home/rust"
    fi
}

# Copies a nightly toolchain, with rustup itself, for nightly.sh.
copy_nightly() {
    local chain programs
    rm -rf "${home:?}/.cargo/bin"
    command -v rustup >/dev/null || return 0
    chain=$(scripts/nightly.sh rustc --print sysroot 2>/dev/null) || return 0
    copy_toolchain "$chain" "$home/.rustup/toolchains/$(basename "$chain")"
    cp "${RUSTUP_HOME:-$mine/.rustup}/settings.toml" "$home/.rustup/"
    programs=$(dirname "$(command -v rustup)")
    mkdir -p "$home/.cargo/bin"
    for chain in rustup cargo rustc rustdoc rustfmt cargo-fmt cargo-clippy clippy-driver cargo-miri; do
        ! [ -x "$programs/$chain" ] || cp -L "$programs/$chain" "$home/.cargo/bin/"
    done
}

as_them() { setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"; }

# Prints the folders of root's PATH that the user may use.
their_path() {
    local folder
    printf '%s' "$home/rust/bin"
    for folder in ${PATH//:/ }; do
        case $folder in
            "$mine"/*) ;;
            *) ! as_them test -x "$folder" || printf ':%s' "$folder" ;;
        esac
    done
    printf ':%s' "$home/.cargo/bin"
}

# Allow only one run at a time: a second run, perhaps from another checkout, would delete the files that the first run
# uses.
exec 8>"$home/.pgcache.lock"
flock --nonblock 8 || die "another as-user.sh is at work in $here: wait for it, or name another user with AS_USER=."

copy_checkout
copy_settings
copy_rust
copy_nightly
chown -R "$user:" "$home"

# Passes on the environment, except variables that point into root's home or name root.
for name in $(compgen -e); do
    case $name=${!name} in
        PATH=*) ;;
        *="$mine" | *="$mine"/* | XDG_* | SUDO_* | MAIL=* | PGCACHE_CACHE=*) unset "$name" ;;
    esac
done
cd "$here"
ulimit -Sn 1024
PATH=$(their_path)
export PATH HOME=$home USER=$user LOGNAME=$user SHELL=/bin/bash
setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@" </dev/null 8>&-
