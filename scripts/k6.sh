#!/usr/bin/env bash
# Builds k6, the load tool of the published rounds, once, outside the checkout, and prints where it is.
#
# Usage: k6.sh
. "$(dirname "$0")/head.sh"
version=v1.8.1
folder=$(scripts/cache-dir.sh)/k6-$version

command -v go >/dev/null || die "go is not on the PATH: install Go 1.26 or newer to load the web server with k6."
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
if [ ! -x "$folder/k6" ]; then
    say "building k6 $version, once, for about 3 minutes (log: $folder.log)" >&2
    GOFLAGS=-mod=mod GOBIN=$folder nice go install "go.k6.io/k6@$version" >"$folder.log" 2>&1 || {
        tail -n 15 "$folder.log" >&2
        die "k6 could not be built: see $folder.log."
    }
fi
echo "$folder/k6"
