# shellcheck shell=bash
# Sourced after need.sh server: sets the paths of all parts of this checkout, for the Postgres that pg-config.sh names.
# Creates only the run folder.
#
# PGCACHE_PROFILE=checked in the environment is for tests: it selects the library of that profile (Makefile), which has
# a separate stage.
#
#   ROOT          the checkout                 PG_CONFIG, PG_MAJOR   the Postgres to build for
#   BUILD, LOG    build/pgNN and its logs      RUN                   staged server and clusters
#                 (pgNN-cassert: of a Postgres with assertions, whose headers differ)
#   STAGE, BINDIR the staged server tree       SERVER_USER           the user of servers; empty: the caller

umask 022
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$ROOT/scripts/say.sh"
. "$ROOT/scripts/limits.sh"
PATH=$("$ROOT/scripts/rust-path.sh" || true)
export PATH

PG_CONFIG=$("$ROOT/scripts/pg-config.sh")
[ -x "$PG_CONFIG" ] || die "$PG_CONFIG does not exist: run scripts/need.sh server, or name another with PG_CONFIG=."
export PG_CONFIG
PG_MAJOR=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
BUILD=$ROOT/build/pg$PG_MAJOR
case $("$PG_CONFIG" --configure) in *--enable-cassert*) BUILD+=-cassert ;; esac
LOG=$BUILD/log
mkdir -p "$LOG"

# Postgres refuses to run as root.
SERVER_USER=
if [ "$(id -u)" = 0 ]; then
    SERVER_USER=$(id -un postgres 2>/dev/null || id -un pgcache 2>/dev/null) ||
        die "Postgres does not run as root and there is no user postgres or pgcache: run scripts/need.sh server."
fi

as_server() (
    cd /
    if [ -n "$SERVER_USER" ]; then
        exec setpriv --reuid="$SERVER_USER" --regid="$(id -g "$SERVER_USER")" --init-groups -- "$@"
    fi
    exec "$@"
)

# The name is different for each checkout, and clean.sh can compute it, too.
FAR_RUN=/tmp/pgcache-$(printf '%s' "$ROOT" | cksum | cut -d' ' -f1)

# The folder is in the checkout, unless the server's user cannot reach it (/root is 0700) or the path leaves no space
# for a socket's name, which is limited to 107 bytes including its folder.
RUN=$BUILD
if ! as_server test -x "$BUILD" || [ ${#BUILD} -gt 70 ]; then
    mkdir -p "$FAR_RUN"
    if [ ! -O "$FAR_RUN" ] || [ -L "$FAR_RUN" ]; then
        die "$FAR_RUN belongs to someone else: remove it, or move the checkout."
    fi
    RUN=$FAR_RUN/${BUILD##*/}
    mkdir -p "$RUN"
fi

export PGCACHE_PROFILE=${PGCACHE_PROFILE:-release}
STAGE=$RUN/stage
[ "$PGCACHE_PROFILE" = release ] || STAGE+=-$PGCACHE_PROFILE
# shellcheck disable=SC2034 # for scripts that source this file
BINDIR=$STAGE$("$PG_CONFIG" --bindir)
