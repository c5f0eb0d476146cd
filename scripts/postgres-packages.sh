#!/usr/bin/env bash
# Unpacks a Postgres from the packages of a newer suite into FOLDER, with every library that it needs, for machines with
# an older C library. The result is for tests, not for production. Changes nothing in the system.
#
# Usage: postgres-packages.sh MAJOR FOLDER
. "$(dirname "$0")/head.sh"

[ $# = 2 ] || die "usage: postgres-packages.sh MAJOR FOLDER"
major=$1 folder=$2
. /etc/os-release
[ "$ID" = debian ] || die "Postgres $major is in no packages that are known for $ID."
need postgres-packages
mirror=$(scripts/mirror.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
: >"$work/status" # an empty system: apt then resolves every library, the C library among them

own_apt() {
    local tool=$1
    shift
    "$tool" -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=true -o APT::Install-Recommends=false "$@"
}

echo '#clear APT::Update::Post-Invoke-Success; #clear APT::Update::Post-Invoke; #clear DPkg::Pre-Install-Pkgs;' >"$work/apt.conf"
export APT_CONFIG=$work/apt.conf

# Experimental has no package of a library whose version in sid suffices.
point_apt_at() {
    local suite
    for suite in "$1" sid; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done | uniq >"$work/sources.list"
    own_apt apt-get update -q=2 >"$work/log" 2>&1 && [ -n "$(own_apt apt-cache show "postgresql-$major" 2>/dev/null)" ]
}

# Prints the libraries that a package names, without Perl, LLVM and the programs for clusters.
libraries() {
    own_apt apt-cache show "$@" | sed -n 's/^Depends: //p' | tr ',|' '\n' | sed 's/(.*//; s/ //g' |
        grep '^lib' | grep -v -e 'libpq-dev' | sort -u
}

fetch() {
    local -a servers=("postgresql-$major" "postgresql-client-$major") needed
    mapfile -t needed < <(libraries "${servers[@]}")
    (cd "$work/debs" && own_apt apt-get download -q=2 "${servers[@]}" "postgresql-server-dev-$major" libpq5 libpq-dev) &&
        own_apt apt-get install -q=2 -y --download-only "${needed[@]}"
}

for suite in trixie forky sid experimental; do
    point_apt_at $suite || continue
    say "postgresql-$major: packages of $suite"
    fetch >>"$work/log" 2>&1 || {
        tail -n 5 "$work/log" >&2
        die "the packages of Postgres $major of $suite could not be fetched from $mirror: check the network."
    }
    rm -rf "$folder"
    mkdir -p "$folder/libraries"
    # libpq comes last, because the version that apt chose may be older than the version of the server's source.
    for package in "$work"/cache/archives/*.deb "$work"/debs/*.deb; do
        dpkg-deb --extract "$package" "$work/root"
    done
    mv "$work/root/usr" "$folder/usr"
    find "$folder/usr/lib" "$work/root" -path '*linux-gnu/*.so*' -maxdepth 5 -exec cp -P -t "$folder/libraries" {} +
    mv "$folder/usr/lib/$(uname -m)-linux-gnu/"libpq* "$folder/libraries/" 2>/dev/null || true
    loader=$(find "$folder/libraries" -name 'ld-linux-*.so*' | head -n 1)
    # Sets an RPATH, because a RUNPATH does not apply to libraries that a library needs.
    find "$folder/usr/lib/postgresql" -type f | while read -r file; do
        ! patchelf --print-interpreter "$file" >/dev/null 2>&1 ||
            patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$folder/libraries" "$file"
    done
    # Lets this machine's compiler, which may be older, build extensions for this Postgres, without LLVM.
    sed -i -e 's/ -Wmissing-variable-declarations//g' -e 's/^with_llvm.*/with_llvm = no/' \
        "$folder/usr/lib/postgresql/$major/lib/pgxs/src/Makefile.global"
    ln -s "usr/lib/postgresql/$major/bin" "$folder/bin"
    "$folder/bin/postgres" --version
    exit 0
done
die "no suite of $ID has packages of Postgres $major at $mirror."
