#!/usr/bin/env bash
# Prints a PATH on which all Rust programs that pgcache needs are new enough: the caller's PATH, if necessary with one
# of these folders in front. Fails if none of them suffices; then run need.sh rust.
#   rust/bin in cache-dir.sh       the Rust that need.sh fetched, or links to an installed Rust that an older one hides
#   /usr/lib/rust-1.NN/bin         Ubuntu's versioned packages, whose programs are not on the PATH
#
# Usage: rust-path.sh [oldest]       oldest: prints only the required version
set -euo pipefail

oldest=1.96 # the oldest version that pgrx 0.19 supports

new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | sed -n 's/^[a-z]* \([0-9]*\.[0-9]*\).*/\1/p')
    [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$version" $oldest | sort -V | head -n 1)" = $oldest ]
}

# rustfmt is required, because pgrx formats the code that it generates for a Postgres, and fails without it.
complete() { new_enough cargo && new_enough rustc && rustfmt --version >/dev/null 2>&1; }

if [ "${1:-}" = oldest ]; then
    echo $oldest
    exit
fi

own=$("$(dirname "${BASH_SOURCE[0]}")/cache-dir.sh")/rust/bin
for folder in '' "$own" $(find /usr/lib -maxdepth 1 -name 'rust-1.*' 2>/dev/null | sort -rV | sed 's:$:/bin:'); do
    candidate=${folder:+$folder:}$PATH
    if PATH=$candidate complete; then
        echo "$candidate"
        exit
    fi
done
echo "$own:$PATH"
exit 1
