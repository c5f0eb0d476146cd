#!/usr/bin/env bash
# Unpacks a source package of this machine's suite or of a newer suite into FOLDER.
#
# Does not change the system: apt gets its own configuration, lists and cache, and requests the suites from the mirror
# that the machine already uses.
#
# Usage: source-package.sh PACKAGE BINARY FOLDER [OLDEST]
#
#   BINARY     a binary package that it must build, as a regular expression
#   OLDEST     a version: takes the oldest suite that has this version or a newer one. Callers that only read the source
#              name it: if a mirror lacks the distribution's part of the source, the authors' part suffices.
. "$(dirname "$0")/head.sh"

[ $# = 3 ] || [ $# = 4 ] || die "usage: source-package.sh PACKAGE BINARY FOLDER [OLDEST]"
package=$1 binary=$2 folder=$3 oldest=${4:-}

. /etc/os-release
case $ID in
    debian) suites="bookworm trixie forky sid experimental" ;;
    ubuntu) suites="jammy noble plucky questing resolute" ;;
    *) die "$package cannot be built: no source packages are known for $ID." ;;
esac
mirror=$(scripts/mirror.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/src"

own_apt() {
    local tool=$1
    shift
    "$tool" -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=true "$@"
}

# Turns off the hooks that run after an update, because they are for the system's own lists.
echo '#clear APT::Update::Post-Invoke-Success; #clear APT::Update::Post-Invoke;' >"$work/apt.conf"
export APT_CONFIG=$work/apt.conf

# Includes every suite's security archive, and reads it first: the installed packages may come from it, and pg_upgrade
# needs minor versions that were released on the same day.
security=$(scripts/mirror.sh -security)

# Reads to the end, because apt-cache fails if its reader stops early.
offers_binary() { own_apt apt-cache showsrc "$package" 2>/dev/null | grep -E "^Binary:.*\b($binary)(,|\$)" >/dev/null; }

is_new_enough() {
    [ -z "$oldest" ] || dpkg --compare-versions "$(own_apt apt-cache showsrc "$package" 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -n 1)" ge "$oldest"
}

deliver() { (cd "$work/src" && own_apt apt-get source -q=2 -o Acquire::Retries=0 --download-only "$package") >"$work/download.log" 2>&1; }

# The lines of apt-get have the form: 'URI' FILE SIZE HASH.
deliver_upstream() {
    local uri file hash
    read -r uri file _ hash <<<"$(own_apt apt-get source -q=2 --print-uris "$package" | grep '\.orig\.tar\.[a-z0-9]* ')"
    [ -n "$file" ] && own_apt /usr/lib/apt/apt-helper -o Acquire::Retries=0 download-file "${uri//\'/}" "$work/src/$file" "$hash" >"$work/download.log" 2>&1
}

point_apt_at() {
    local archive=$mirror
    case $1 in
        *-security) archive=$security ;;
    esac
    echo "deb-src [signed-by=/usr/share/keyrings/$ID-archive-keyring.gpg] $archive $1 main" >"$work/sources.list"
    own_apt apt-get update -q=2 >"$work/update.log" 2>&1 && offers_binary && is_new_enough
}

mkdir -p "$(dirname "$folder")"
undelivered=
for suite in $(for name in $suites; do echo "${security:+$name-security} $name"; done); do
    point_apt_at "$suite" || continue
    say "$package: source package of $suite"
    if deliver; then
        rm -rf "$folder"
        dpkg-source --no-check --no-copy -x "$work/src/${package}"_*.dsc "$folder" >/dev/null 2>&1
        exit 0
    fi
    rm -f "$work"/src/*
    if [ -n "$oldest" ] && deliver_upstream; then
        say "$package: the authors' part of it"
        rm -rf "$folder"
        mkdir -p "$folder"
        tar -xf "$work/src/$package"_*.orig.tar.* -C "$folder" --strip-components=1
        exit 0
    fi
    say "$package: $suite lists it and the mirror does not deliver it"
    undelivered=$suite
done
if [ -n "$undelivered" ]; then
    grep '^E:' "$work/download.log" >&2 || true
    die "the mirror $mirror lists the source package $package in $undelivered but does not deliver it: check the network, or use another mirror."
fi
die "no suite of $ID ($suites) has $binary${oldest:+ $oldest or newer} at $mirror."
