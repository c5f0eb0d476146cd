# shellcheck shell=bash
# Sourced by the checks that need a clean Debian, after say.sh: base systems made by debootstrap and kept
# in cache-dir.sh, and what the host lends them. They need root.
#
#   work_for TARGET [MB]            sets `work`, a folder in the cache that goes when we do (clear_away)
#   make_base SUITE KIND PACKAGES   sets BASE to a tar file; PACKAGES are joined by commas
#   unpack_base ROOT                with names, certificates and apt's proxy of the host
#   lend_rust ROOT                  the caller's Rust, as a user of rustup would have it
#   enter ROOT COMMAND...           runs it in ROOT, in namespaces of its own: its mounts and processes end with it
#   leave                           ends it, for a trap: unshare itself ignores TERM

work_for() {
    local cache
    [ "$(id -u)" = 0 ] || die "$1 makes a system in a folder and needs root: run sudo -E make $1."
    cache=$(scripts/cache-dir.sh)
    mkdir -p "$cache"
    need_room "$cache" "${2:-3000}" "$1" "set PGCACHE_CACHE"
    work=$(mktemp -d "$cache/$1.XXXXXX")
    chmod 755 "$work"
    trap clear_away EXIT
    trap 'exit 130' INT TERM
}

clear_away() {
    leave
    rm -rf "$work"
}

make_base() {
    local suite=$1 kind=$2 packages=$3 cache mirror work
    cache=$(scripts/cache-dir.sh)
    BASE=$cache/$kind-$suite.tar
    [ ! -e "$BASE" ] || return 0
    scripts/need.sh debootstrap
    mirror=$(scripts/mirror.sh)
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/$kind-$suite.XXXXXX")
    say "making a base system of $suite (once)"
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" "$mirror" >"$work/log" 2>&1 || {
        tail -n 5 "$work/log" >&2
        rm -rf "$work"
        die "debootstrap could not make $suite from $mirror: check the network."
    }
    rm -rf "$work/root/var/cache/apt/archives/"*.deb
    tar -C "$work/root" -cf "$work/tar" .
    mv "$work/tar" "$BASE"
    rm -rf "$work"
}

unpack_base() {
    local root=$1
    mkdir "$root"
    tar -C "$root" -xf "$BASE"
    chmod 755 "$root"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null 2>&1
    apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]+)[: ]' >"$root/etc/apt/apt.conf.d/99host" || true
}

lend_rust() {
    local root=$1 toolchain program
    toolchain=$(rustc --print sysroot)
    mkdir -p "$root/opt/rust"
    cp -r "$toolchain/bin" "$toolchain/lib" "$root/opt/rust/"
    for program in "$root"/opt/rust/bin/*; do
        ln -s "${program#"$root"}" "$root/usr/local/bin/"
    done
}

INNER=

# The first process inside must stay root: a change of user would undo --kill-child.
enter() {
    local status=0
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        chroot "$root" "$@"
        exit 0' enter "$@" </dev/null &
    INNER=$!
    wait "$INNER" || status=$?
    INNER=
    return "$status"
}

leave() { [ -z "$INNER" ] || kill -KILL "$INNER" 2>/dev/null || true; }
