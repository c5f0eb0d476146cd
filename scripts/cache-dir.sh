#!/usr/bin/env bash
# Names the folder for what is slow to make and outlives `make clean`: source builds of Postgres, the
# base systems of fresh-check. As root it lies where the server's own user can read it.
set -euo pipefail

if [ "$(id -u)" = 0 ]; then
    echo "${PGCACHE_CACHE:-/var/cache/pgcache}"
else
    echo "${PGCACHE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pgcache}"
fi
