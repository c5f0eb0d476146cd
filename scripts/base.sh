# shellcheck shell=bash
# Sourced after say.sh by the files of scripts/check that need a clean Debian or Ubuntu. Makes base systems with
# debootstrap, keeps them in the folder of cache-dir.sh, and copies the host's network settings into them. Needs root.
#
#   work_for TARGET [MB]            sets `work`, a folder in the cache that is removed at the end (clear_away)
#   make_base SUITE KIND PACKAGES   sets BASE to a tar file; PACKAGES are separated by commas
#   unpack_base ROOT                unpacks it, with names, certificates and apt's proxy of the host
#   enter ROOT COMMAND...           runs it in ROOT, in its own namespaces: its mounts and processes end with it
#   enter_as_root ROOT WORD...      runs the script on standard input there, as root and with a clean environment
#   leave                           ends it, in a trap, because unshare itself ignores TERM

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

ubuntu_keys=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}

# For a suite of this machine's distribution, prints the machine's mirror. For another distribution, prints MIRROR, or
# nothing, so that debootstrap chooses.
mirror_for() {
    local distribution=debian
    ! is_ubuntu "$1" || distribution=ubuntu
    if [ "$(. /etc/os-release && echo "$ID")" = $distribution ]; then scripts/mirror.sh; else echo "${MIRROR:-}"; fi
}

make_base() {
    local suite=$1 kind=$2 packages=$3 cache mirror folder
    # debootstrap makes all Ubuntu suites with the same script. Name that script, because an older debootstrap does not
    # know the newer suites.
    local -a how=() script=()
    cache=$(scripts/cache-dir.sh)
    BASE=$cache/$kind-$suite.tar
    [ ! -e "$BASE" ] || return 0
    scripts/need.sh debootstrap
    if is_ubuntu "$suite"; then
        [ -e "$ubuntu_keys" ] || die "making $suite needs Ubuntu's keys: install ubuntu-keyring or ubuntu-archive-keyring, or name their file with UBUNTU_KEYRING=."
        how=(--keyring="$ubuntu_keys" "--components=main,universe") script=(gutsy)
    fi
    mirror=$(mirror_for "$suite")
    mkdir -p "$cache"
    folder=$(mktemp -d "$cache/$kind-$suite.XXXXXX")
    say "making a base system of $suite (once)"
    debootstrap --variant=minbase --include="$packages" ${how[@]+"${how[@]}"} "$suite" "$folder/root" "$mirror" \
        ${script[@]+"${script[@]}"} >"$folder/log" 2>&1 || {
        tail -n 5 "$folder/log" >&2
        rm -rf "$folder"
        die "debootstrap could not make $suite${mirror:+ from $mirror}: check the network."
    }
    rm -rf "$folder/root/var/cache/apt/archives/"*.deb
    tar -C "$folder/root" -cf "$folder/tar" .
    mv "$folder/tar" "$BASE"
    rm -rf "$folder"
}

is_ubuntu() { [[ $1 =~ ^(jammy|noble|plucky|questing|resolute)$ ]]; }

# Adds the suites with updates since the release, which an installer would also configure.
more_sources() {
    local root=$1 suite line mirror security components=main
    suite=$(sed -n 's/^VERSION_CODENAME=//p' "$root/etc/os-release")
    line=$(grep -m 1 '^deb ' "$root/etc/apt/sources.list")
    mirror=$(sed 's/^deb \(\[[^]]*\] \)\?//; s/ .*//' <<<"$line")
    if is_ubuntu "$suite"; then
        security=$mirror
        components="main universe"
    else
        security=$(scripts/mirror.sh -security)
    fi
    {
        echo "deb $mirror $suite-updates $components"
        [ -z "$security" ] || echo "deb $security $suite-security $components"
    } >"$root/etc/apt/sources.list.d/updates.list"
}

unpack_base() {
    local root=$1
    mkdir "$root"
    tar -C "$root" -xf "$BASE"
    chmod 755 "$root"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null 2>&1
    more_sources "$root"
    apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]+)[: ]' >"$root/etc/apt/apt.conf.d/99host" || true
}

INNER=

# The first process inside must stay root, because a change of user would undo --kill-child.
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

enter_as_root() {
    local root=$1
    shift
    cat >"$root/srv/inside.sh"
    enter "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash /srv/inside.sh "$@"
}

leave() { [ -z "$INNER" ] || kill -KILL "$INNER" 2>/dev/null || true; }
