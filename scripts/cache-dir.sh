#!/usr/bin/env bash
# Prints the folder for files that take long to make and that `make clean` keeps: source builds of Postgres, and the
# base systems of fresh-check. For root it is a folder that the server's own user can read.
set -euo pipefail

if [ "$(id -u)" = 0 ]; then
    echo "${PGCACHE_CACHE:-/var/cache/pgcache}"
else
    # A service or a job may have no HOME.
    home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
    echo "${PGCACHE_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/pgcache}"
fi
