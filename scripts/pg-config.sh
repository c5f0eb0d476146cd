#!/usr/bin/env bash
# Prints the path of the pg_config of the Postgres to build for. Installs nothing. The path need not exist yet, because
# need.sh server creates it. The choice, in this order:
#   PG_CONFIG=/path/to/pg_config   exactly that one
#   PG=17                          that major: installed, from a package, or built from source
#   pg_config on the PATH          if the headers of its server are installed
#   the distribution's own major
set -euo pipefail

cache=$(cd "$(dirname "$0")" && ./cache-dir.sh)

packaged() { printf '/usr/lib/postgresql/%s/bin/pg_config\n' "$1"; }

has_server_headers() {
    local headers
    headers=$("$1" --includedir-server 2>/dev/null) && [ -e "$headers/postgres.h" ]
}

has_package() { [ -n "$(apt-cache --quiet=2 show "postgresql-server-dev-$1" 2>/dev/null)" ]; }

# The package `postgresql` has the major in its version: 15+248, 17+278.
distribution_major() {
    if command -v apt-cache >/dev/null; then
        apt-cache show postgresql 2>/dev/null | sed -n 's/^Version: \([0-9]*\)+.*/\1/p' | sort -rn | head -n 1
    fi
}

# If the package lists were never fetched, apt does not know `postgresql`.
major_by_release() {
    case $(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}") in
        bookworm) echo 15 ;;
        trixie | plucky | questing) echo 17 ;;
        jammy) echo 14 ;;
        noble | oracular) echo 16 ;;
        forky | sid | resolute) echo 18 ;;
    esac
}

if [ -n "${PG_CONFIG:-}" ]; then
    command -v "$PG_CONFIG" || printf '%s\n' "$PG_CONFIG"
elif [ -n "${PG:-}" ]; then
    if has_server_headers "$(packaged "$PG")" || has_package "$PG"; then
        packaged "$PG"
    else
        printf '%s/postgres-%s/bin/pg_config\n' "$cache" "$PG"
    fi
elif command -v pg_config >/dev/null && has_server_headers pg_config; then
    printf '%s/pg_config\n' "$(pg_config --bindir)"
else
    major=$(distribution_major)
    packaged "${major:-$(major_by_release)}"
fi
