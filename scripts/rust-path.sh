#!/usr/bin/env bash
# Prints a PATH on which cargo is new enough for pgcache: the caller's own, else with the toolchain before it
# that need.sh keeps in cache-dir.sh. Fails when that is not there yet.
set -euo pipefail

oldest=1.91 # pgrx 0.18 does not build with 1.88, and does with this
version=$(cargo --version 2>/dev/null | sed 's/^cargo \([0-9]*\.[0-9]*\).*/\1/' || true)

if [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$version" $oldest | sort -V | head -n 1)" = $oldest ]; then
    echo "$PATH"
    exit
fi
own=$("$(dirname "${BASH_SOURCE[0]}")/cache-dir.sh")/rust/bin
echo "$own:$PATH"
[ -x "$own/cargo" ]
