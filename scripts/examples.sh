#!/usr/bin/env bash
# Runs the examples in a throwaway cluster and compares what they print with what examples/README.md shows.
# What they need goes to the cache folder, not into the checkout.
#
# Usage: examples.sh LANGUAGE...      python, node, go, ruby; see need.sh for what each wants
. "$(dirname "$0")/head.sh"
need server "$@"
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null

installed=$(scripts/cache-dir.sh)/examples
cluster=examples

# The copies are one for all checkouts. The server must not inherit the lock.
mkdir -p "$installed"
exec 8>"$installed/lock"
flock 8

# A copy of the example beside its packages, which are fetched again only when it asks for others.
#   copy LANGUAGE FILE COMMAND...     FILE: what names the packages
copy() {
    local language=$1 list=$2
    shift 2
    mkdir -p "$installed/$language"
    cp "examples/$language"/* "$installed/$language"
    cmp -s "examples/$language/$list" "$installed/$language/.installed" && return 0
    say "fetching the packages of $language"
    (cd "$installed/$language" && "$@") || die "the packages of the example in $language could not be fetched: check the network."
    cp "examples/$language/$list" "$installed/$language/.installed"
}

prepare() {
    case $1 in
        python) copy python requirements.txt sh -c \
            'python3 -m venv --clear venv && venv/bin/pip install -q --disable-pip-version-check -r requirements.txt' ;;
        node) copy node package-lock.json npm ci --silent --no-audit --no-fund ;;
        go) GOFLAGS='-mod=readonly -buildvcs=false' nice go build -C examples/go -o "$installed/go/shop" . ||
            die "the example in Go does not build: see above." ;;
    esac
}

run() {
    case $1 in
        python) "$installed/python/venv/bin/python" "$installed/python/shop.py" ;;
        node) node "$installed/node/shop.js" ;;
        go) "$installed/go/shop" ;;
        # The gem may be there for one of two Rubies only, as a package for the system's.
        ruby) "$(ruby -rpg -e '' 2>/dev/null && echo ruby || echo /usr/bin/ruby)" examples/ruby/shop.rb ;;
        *) die "there is no example in $1." ;;
    esac
}

shown() { awk '/^```/ { inside = ($0 == "```text"); next } inside' examples/README.md; }

stop_cluster() { scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true; }

# Each in a database of its own, which the page's own command prepares.
check() {
    local language=$1 from verdict=FAILED
    from=$(date +%s%3N)
    psql -X -q -c "CREATE DATABASE example_$language"
    export PGDATABASE=example_$language
    psql -X -q -v ON_ERROR_STOP=1 -f examples/setup.sql >/dev/null
    if diff <(shown) <(run "$language" 2>&1) && [ -n "$(shown)" ]; then
        verdict=ok
    else
        failed=1
    fi
    echo "test examples/$language ... $verdict $(($(date +%s%3N) - from)) ms"
}

for language in "$@"; do
    prepare "$language"
done

failed=0
trap stop_cluster EXIT
stop_cluster
scripts/cluster.sh start "$cluster" 8>&-
eval "$(scripts/cluster.sh env "$cluster")"
for language in "$@"; do
    check "$language"
done
exit $failed
