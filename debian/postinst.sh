#!/bin/sh
# Says after an upgrade what the administrator has to do: running servers keep the old library.
set -e

#DEBHELPER#

if [ "$1" = configure ] && [ -n "$2" ]; then
    echo "pgcache was upgraded from $2. Restart each Postgres server that preloads it, and then run"
    echo "ALTER EXTENSION pgcache UPDATE in each database that has it (docs/upgrading.md)."
fi
