#!/usr/bin/env bash
# Makes a copy of the server in the run folder and installs the extension there, so that the tests need neither root nor
# the system's folders. Postgres finds its libraries and its share folder relative to the executable. So the script
# copies the programs, and links all other files under the same absolute paths.
set -euo pipefail
. "$(dirname "$0")/env.sh"

pkglibdir=$("$PG_CONFIG" --pkglibdir)
sharedir=$("$PG_CONFIG" --sharedir)

mirror() {
    local from=$1 kind=$2
    mkdir -p "$STAGE$from"
    cp "$kind" -r "$from/." "$STAGE$from/"
}

# The origin of the stage. If the server or pg_cron has changed, the stage is made again.
origin() { "$PG_CONFIG" --version --bindir && find "$pkglibdir" "$sharedir/extension" -maxdepth 1 -newermt 1970-01-02 -printf '%f %T@\n' | sort; }

if ! [ -e "$STAGE/origin" ] || ! cmp -s <(origin) "$STAGE/origin"; then
    rm -rf "$STAGE"
    mirror "$("$PG_CONFIG" --bindir)" --dereference
    mirror "$pkglibdir" --symbolic-link
    mirror "$sharedir" --symbolic-link
    # Removes the links to an installed pgcache, which the tests must neither use nor overwrite.
    find "$STAGE" -name 'pgcache*' -type l -delete
    origin >"$STAGE/origin"
fi

make -s -C "$ROOT" install DESTDIR="$STAGE" PG_CONFIG="$PG_CONFIG" PGCACHE_PROFILE="$PGCACHE_PROFILE"

# Builds beside copies of the sources, because PGXS cannot build in a separate folder if the server was not built in
# one.
mkdir -p "$BUILD/native"
cp -p "$ROOT"/t/native/* "$BUILD/native/"
make -s -C "$BUILD/native" install DESTDIR="$STAGE" PG_CONFIG="$PG_CONFIG"
echo "staged in $STAGE"
