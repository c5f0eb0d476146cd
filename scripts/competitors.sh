#!/usr/bin/env bash
# Fetches newer versions of Redis, Valkey and memcached than this machine's. Unpacks packages of a newer suite, with
# every library that they need, into a folder outside the checkout. Installs nothing.
#
# Usage: competitors.sh [SUITE]      prints the folder whose run/ starts them; Debian: trixie unless said otherwise
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"
. /etc/os-release

[ "$ID" = debian ] || die "newer competitors are known for Debian only; the machine's own are measured."
suite=${1:-trixie}
packages=(redis-server redis-tools valkey-server memcached)
folder=$("$here/cache-dir.sh")/competitors-$suite
arch=$(dpkg --print-architecture)

mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ]; then
    echo "$folder"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: >"$work/status" # an empty system: apt then resolves every library, the C library among them
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $("$here/mirror.sh") $suite main" >"$work/sources.list"
echo '#clear APT::Update::Post-Invoke-Success; #clear APT::Update::Post-Invoke; #clear DPkg::Pre-Install-Pkgs;' >"$work/apt.conf"
export APT_CONFIG=$work/apt.conf

own_apt() {
    apt-get -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=true -o APT::Install-Recommends=false "$@"
}

say "fetching ${packages[*]} of $suite, once (log: $folder.log)" >&2
(own_apt update -q=2 && own_apt install -q -y --download-only "${packages[@]}") >"$folder.log" 2>&1 || {
    grep '^E:' "$folder.log" >&2 || true
    die "the packages of $suite could not be fetched: see $folder.log."
}
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --exclude='./usr/share' --exclude='./dev/*' --keep-directory-symlink
done

# Start the programs with their own loader and libraries, because the machine's C library is older than they need.
libraries=$(find "$folder" -name '*.so*' -printf '%h\n' | sort -u | grep -v -e gconv -e security -e engines | paste -sd:)
loader=$(find "$folder" -name 'ld-linux-*.so*' | head -n 1)
[ -n "$loader" ] || die "the packages of $suite ($arch) brought no loader: see $folder.log."
for program in redis-server redis-cli redis-benchmark valkey-server valkey-cli valkey-benchmark memcached; do
    path=$(find "$folder/usr/bin" -name "$program" | head -n 1)
    [ -n "$path" ] || continue
    # shellcheck disable=SC2016 # for the script that is written
    printf '#!/bin/sh\nexec %s --argv0 %s --library-path %s %s "$@"\n' "$loader" "$program" "$libraries" "$path" >"$work/$program"
    chmod 755 "$work/$program"
done
mkdir -p "$folder/run"
find "$work" -maxdepth 1 -type f -perm 755 -exec cp -t "$folder/run" {} +
touch "$folder/.complete"
echo "$folder"
