# shellcheck shell=bash
# Tests, without a network, how need.sh finds or installs Rust on many kinds of systems, and its message if it cannot.
# apt, cargo and rustup are replaced by stand-ins; all other programs are the machine's. fresh-check tests the packages
# themselves.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# The PATH of a system that lacks all programs that could bring Rust.
make_programs() {
    mkdir "$work/programs"
    ln -s /usr/bin/* /usr/sbin/* /bin/* "$work/programs/" 2>/dev/null || true
    (cd "$work/programs" && rm -f cargo* rustc* rustdoc* rustfmt* rustup* apt-get apt-cache curl sudo dpkg dpkg-query find uname id)
}

stand_in() {
    cat >"$system/bin/$1"
    chmod 755 "$system/bin/$1"
}

# Makes a system with a stand-in for apt. It offers the packages in $system/offers (NAME VERSION), and after an update
# also those in $system/later. It installs a package by making programs of that version. It refuses the packages in
# $system/conflicts, whose installation would remove other packages.
new_system() {
    system=$work/$1
    mkdir -p "$system/bin" "$system/cache" "$system/installed" "$system/usr"
    touch "$system/offers" "$system/later" "$system/conflicts"
    stand_in apt-cache <<'STUB'
#!/bin/sh
system=$(dirname "$(dirname "$0")")
case "$*" in
    policy\ *) sed -n "s/^$2 \(.*\)/  Candidate: \1/p" "$system/offers" ;;
    *search*) sed -n 's/^\(cargo-1\.[0-9]*\) .*/\1 - a package manager/p' "$system/offers" ;;
esac
STUB
    stand_in apt-get <<'STUB'
#!/bin/bash
system=$(dirname "$(dirname "$0")")
echo "$*" >>"$system/apt.log"
case " $* " in
    *' update '*) cat "$system/later" >>"$system/offers"; exit ;;
    *' --download-only '*)
        archives=$(printf '%s\n' "$@" | sed -n 's/^Dir::Cache=//p')/archives
        for name; do
            version=$(sed -n "s/^$name \(.*\)/\1/p" "$system/offers")
            [ -z "$version" ] || echo "$name $version" >"$archives/$name.deb"
        done
        exit
        ;;
esac
for name; do
    ! grep -qxe "$name" "$system/conflicts" || exit 100
done
[[ " $* " != *' --simulate '* ]] || exit 0
for name; do
    touch "$system/installed/$name"
    version=$(sed -n "s/^$name \(.*\)/\1/p" "$system/offers")
    case $name in
        cargo | rustc | rustfmt) folder=$system/bin program=$name ;;
        *-web) folder=$system/bin program=${name%-web} ;;
        cargo-1.* | rustc-1.* | rustfmt-1.*) folder=$system/usr/rust-${name#*-}/bin program=${name%%-*} ;;
        *) continue ;;
    esac
    mkdir -p "$folder"
    printf '#!/bin/sh\necho "%s %s"\n' "$program" "${version%%+*}" >"$folder/$program"
    chmod 755 "$folder/$program"
done
STUB
    stand_in dpkg <<'STUB'
#!/bin/bash
[ "$1" = -x ] || exec /usr/bin/dpkg "$@"
read -r name version <"$2"
mkdir -p "$3/usr/bin"
printf '#!/bin/sh\necho "%s %s"\n' "${name%%-*}" "${version%%+*}" >"$3/usr/bin/${name%%-*}"
chmod 755 "$3/usr/bin/${name%%-*}"
STUB
    stand_in dpkg-query <<'STUB'
#!/bin/bash
for name; do :; done
case $name in build-essential | pkg-config | libclang-dev | ca-certificates | curl) echo installed; exit ;; esac
[ -e "$(dirname "$(dirname "$0")")/installed/$name" ] && echo installed
STUB
    # Ubuntu's packages install into these folders.
    stand_in find <<'STUB'
#!/bin/sh
[ "$1" = /usr/lib ] && exec /usr/bin/find "$(dirname "$(dirname "$0")")/usr" -maxdepth 1 -name 'rust-1.*'
exec /usr/bin/find "$@"
STUB
    stand_in uname <<'STUB'
#!/bin/sh
echo "${MACHINE:-x86_64}"
STUB
    # An ordinary user: sudo reaches only the stand-in for apt-get, and nothing of this machine.
    stand_in id <<<'#!/bin/sh
echo 1000'
    stand_in sudo <<'STUB'
#!/bin/sh
case $1 in env | apt-get | true) exec "$@" ;; -n) exec "$2" ;; esac
[ -t 0 ] || cat >/dev/null
STUB
}

# Makes the file that the stand-in for curl downloads.
site_has() {
    stand_in curl <<STUB
#!/bin/bash
while [ \$# -gt 0 ]; do [ "\$1" != --output ] || file=\$2; shift; done
[ "$1" = nothing ] && exit 6
printf '#!/bin/sh\ntouch $system/ran\n' >"\$file"
STUB
}

# Makes a stand-in for the user's rustup, which installs a toolchain or fails.
rustup_that() {
    stand_in rustup <<STUB
#!/bin/bash
[ $1 = works ] || exit 1
[[ "\$*" == *'toolchain install 1.96.0'*rustfmt* ]] || exit 1
folder=\$RUSTUP_HOME/toolchains/1.96.0-x86_64-unknown-linux-gnu/bin
mkdir -p "\$folder"
for program in cargo rustc rustfmt; do
    printf '#!/bin/sh\necho "%s 1.96.0"\n' \$program >"\$folder/\$program"
    chmod 755 "\$folder/\$program"
done
STUB
}

# FOLDER VERSION PROGRAM...: makes programs that exist already.
rust() {
    local program folder=$system/$1 version=$2
    mkdir -p "$folder"
    for program in "${@:3}"; do
        printf '#!/bin/sh\necho "%s %s"\n' "$program" "$version" >"$folder/$program"
        chmod 755 "$folder/$program"
    done
}

run() { env -i PATH="$system/before:$system/bin:$work/programs" PGCACHE_CACHE="$system/cache" HOME="$system" MACHINE="${machine:-}" "$@"; }

need_rust() { run "$BASH" scripts/need.sh rust >"$system/said" 2>&1; }

check() {
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "   FAILED: ${system##*/}: $name ($*); it said: $(tail -n 5 "$system/said" 2>/dev/null)"
    fi
}

takes() { need_rust && [ "$(run env PATH="$(run "$BASH" scripts/rust-path.sh)" cargo --version)" = "cargo $1" ]; }
installs() { grep -q -- "--no-remove.* $1\$" "$system/apt.log"; }
installs_no_rust() { ! grep -vE -- '--(simulate|download-only)' "$system/apt.log" 2>/dev/null | grep -E ' (cargo|rustc|rustfmt)'; }
says() { grep -q -- "$1" "$system/said"; }
finds_none() { ! run "$BASH" scripts/rust-path.sh >/dev/null; }
fails() { ! need_rust; }

debian_12() {
    printf '%s\n' 'cargo 0.66.0+ds1-1' 'rustc 1.63.0+dfsg1-2' 'rustfmt 1.63.0+dfsg1-2' \
        'cargo-web 1.96.0+dfsg1-1~deb12u2' 'rustc-web 1.96.0+dfsg1-1~deb12u2' 'rustfmt-web 1.96.0+dfsg1-1~deb12u2'
}

make_programs

new_system nothing-there
debian_12 >"$system/offers"
check 'Debian 12 or 13: the Rust of its browsers' takes '1.96.0'
check 'with rustfmt' installs 'cargo-web rustc-web rustfmt-web'
: >"$system/apt.log"
check 'the second time it installs nothing' need_rust
check 'the second time it installs nothing' test ! -s "$system/apt.log"

new_system with-clippy
debian_12 >"$system/offers"
echo 'rust-web-clippy 1.96.0+dfsg1-1~deb12u2' >>"$system/offers"
check 'a linter beside it comes, too' takes '1.96.0'
check 'a linter beside it comes, too' installs 'cargo-web rustc-web rustfmt-web rust-web-clippy'

new_system old-lists
debian_12 | grep -v -- -web >"$system/offers"
debian_12 | grep -- -web >"$system/later"
check 'lists from before that Rust came are fetched anew' takes '1.96.0'

new_system newer-suite
printf '%s 1.97.1+dfsg1-1\n' cargo rustc rustfmt >"$system/offers"
check 'a suite whose own is new enough: that' takes '1.97.1'
check 'a suite whose own is new enough: that' installs 'cargo rustc rustfmt'

new_system ubuntu
printf '%s 1.75.0+dfsg0ubuntu1-0ubuntu7\n' cargo rustc rustfmt >"$system/offers"
for version in 1.80 1.93 1.96 1.98; do
    printf "%s-$version $version.1+dfsg-0ubuntu1\n" cargo rustc rustfmt >>"$system/offers"
done
check 'Ubuntu: the newest of its versioned packages' takes '1.98.1'
check 'Ubuntu: the newest of its versioned packages' installs 'cargo-1.98 rustc-1.98 rustfmt-1.98'

new_system ubuntu-half
for version in 1.96 1.98; do
    printf "%s-$version $version.1+dfsg-0ubuntu1\n" cargo rustc rustfmt >>"$system/offers"
done
sed -i '/^rustfmt-1.98/d' "$system/offers"
check 'Ubuntu: only one that is whole' takes '1.96.1'

new_system too-old
debian_12 >"$system/offers"
rust before 1.75.0 cargo rustc rustfmt
check 'an older Rust before it on the PATH is passed over' takes 1.96.0
check 'and stays' test -x "$system/before/cargo"

for program in cargo rustc rustfmt; do
    new_system "without-$program"
    debian_12 >"$system/offers"
    # shellcheck disable=SC2046 # words
    rust bin 1.96.0 $(printf '%s\n' cargo rustc rustfmt | grep -vx $program)
    check 'it is missed' finds_none
    check 'it is brought' takes 1.96.0
done

new_system rustup-of-the-user
debian_12 >"$system/offers"
rustup_that works
check 'it fetches' takes 1.96.0
check 'no package is needed' installs_no_rust

new_system rustup-offline
debian_12 >"$system/offers"
rustup_that fails
check 'then a package' takes 1.96.0

new_system conflict
debian_12 >"$system/offers"
echo cargo-web >"$system/conflicts"
rust before 0.66.0 cargo rustc
check 'beside a package that would have to go: unpacked' takes 1.96.0
check 'nothing of the user goes' installs_no_rust
check 'and that is said' says 'unpacking cargo-web rustc-web rustfmt-web'
check 'in a folder of its own' test -x "$system/cache/rust/usr/bin/cargo"
rm -r "$system/cache/rust"
check 'which may go again' takes 1.96.0

new_system no-sudo
debian_12 >"$system/offers"
rm "$system/bin/sudo"
check 'an ordinary user without sudo: unpacked' takes 1.96.0
check 'and not installed' installs_no_rust

new_system nothing-offered
debian_12 | grep -v -- -web >"$system/offers"
site_has nothing
check 'no package, no network' fails
check 'it says what it would fetch' says 'no package has Rust 1.96 or newer: fetching rustup'
check 'it says what is missing' says 'Rust 1.96 or newer is needed (there is no cargo).*check the network'

new_system changed-site
site_has something
check 'another file under that name is refused' fails
check 'another file under that name is refused' says 'its checksum differs, so it was not run'
check 'and not run' test ! -e "$system/ran"

machine=riscv64
new_system other-machine
check 'a machine whose checksum is not known' fails
check 'a machine whose checksum is not known' says 'for riscv64 it must be installed by hand'
machine=

printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
