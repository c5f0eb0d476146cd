#!/usr/bin/env bash
# Names the folder for what is slow to make and outlives `make clean`: source builds of Postgres, the
# base systems of fresh-check. As root it lies where the server's own user can read it.
set -euo pipefail

if [ "$(id -u)" = 0 ]; then
    echo "${PGCACHE_CACHE:-/var/cache/pgcache}"
else
    # A service or a job may have no HOME.
    home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
    echo "${PGCACHE_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/pgcache}"
fi
