# shellcheck shell=bash
# Verifies that a new user needs only two commands: on a clean Debian or Ubuntu with only git, make and sudo, a clone of
# HEAD runs `make demo`, `make test` and `make clean`, as root and as an ordinary user with sudo and ordinary limits.
# Afterwards no process may remain, and the clone must be unchanged.
#
# The system is a folder (base.sh); it uses the host's network, with its proxy and certificates.
#
# Usage: check.sh fresh bookworm|trixie|noble
# Environment: FRESH_USER=name, FRESH_AS="root user" (either or both), FRESH_RUN="demo test" (targets),
# FRESH_FIRST="packages to install before", such as an old cargo
. scripts/base.sh

suite=${1:-${SUITE:-}}
[[ $suite =~ ^(bookworm|trixie|noble)$ ]] || die "usage: make fresh-check SUITE=bookworm, trixie or noble"
user=${FRESH_USER:-guest}
targets=${FRESH_RUN:-demo test}
work_for fresh-check 8000

make_system() {
    local root=$1
    unpack_base "$root"
    ! chroot "$root" sh -c 'command -v cargo rustc rustup' || die "the fresh system has Rust already and would prove nothing."
    if [ -n "${FRESH_FIRST:-}" ]; then
        # shellcheck disable=SC2086 # names of packages
        chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update -q=2 && apt-get install -q=2 -y "$@"' sh $FRESH_FIRST >/dev/null 2>&1 ||
            die "$FRESH_FIRST could not be installed in the fresh system: check the network."
    fi
    git bundle create "$root/srv/pgcache.bundle" HEAD 2>/dev/null
    chmod 644 "$root/srv/pgcache.bundle"
    chroot "$root" useradd --create-home --shell /bin/bash "$user"
    echo "$user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$user"
    inside >"$root/srv/inside.sh"
}

# Runs the targets in the chosen system, as the chosen user, in a clone of HEAD in the home folder.
inside() {
    cat <<'INSIDE'
set -euo pipefail
cd ~
git -c advice.detachedHead=false -c init.defaultBranch=main clone -q /srv/pgcache.bundle pgcache
cd pgcache
ulimit -Sn 1024
for target; do
    make "$target"
done
left=$(cat /proc/[0-9]*/comm | grep -E 'postgres|redis' || true)
[ -z "$left" ] || { echo "left running: $left"; exit 1; }
make clean
left=$(git status --porcelain --ignored; ls -d /tmp/pgcache-* 2>/dev/null || true)
[ -z "$left" ] || { echo "make clean left behind: $left"; exit 1; }
INSIDE
}

# Passes on proxy settings. Certificates need no setting, because they are installed in the system.
run_as() {
    local who=$1 root=$work/$1 from=$SECONDS log environment
    log=$(scripts/cache-dir.sh)/fresh-$suite-$who.log
    make_system "$root"
    mapfile -t environment < <(env | grep -iE '^(https?|no|all|ftp)_proxy=' || true)
    say "$suite as $who: $targets"
    # shellcheck disable=SC2086 # words
    enter "$root" setpriv --reuid="$who" --regid="$who" --init-groups env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$(chroot "$root" getent passwd "$who" | cut -d: -f6)" \
        USER="$who" "${environment[@]}" bash /srv/inside.sh $targets > >(tee "$log") 2>&1 ||
        die "fresh-check $suite: FAILED as $who after $((SECONDS - from)) s (log: $log)"
    rm -rf "$root"
    results+=("as $who in $((SECONDS - from)) s")
}

make_base "$suite" bare git,make,sudo,ca-certificates
results=()
for who in ${FRESH_AS:-root user}; do
    [ "$who" = root ] || who=$user
    run_as "$who"
done
printf 'fresh-check %s: %s and clean pass' "$suite" "$targets"
printf ' %s' "${results[@]}"
echo
