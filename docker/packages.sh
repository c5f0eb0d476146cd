#!/bin/sh
# Installs packages in an image and leaves no lists behind. A Postgres that Debian does not have comes
# from the archive of the Postgres project, by the script that Debian ships for that.
set -eu

lists() { apt-get update -q=2; }

install() { DEBIAN_FRONTEND=noninteractive apt-get install -q=2 -y --no-install-recommends "$@" >/dev/null; }

lists
for package in "$@"; do
    case $package in
        postgresql-*)
            if ! apt-cache show "$package" >/dev/null 2>&1; then
                install ca-certificates postgresql-common
                /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y
                lists
            fi
            ;;
    esac
done
install "$@"
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
