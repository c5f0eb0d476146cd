#!/usr/bin/env bash
# Runs the examples in a throwaway cluster and compares their output with examples/README.md. Their packages go to the
# cache folder, not into the checkout.
#
# Usage: examples.sh LANGUAGE...      python, node, go, ruby; need.sh lists what each needs
. "$(dirname "$0")/head.sh"
need server "$@"
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
lock_packages

cluster=examples

run() {
    case $1 in
        python) "$installed/python/venv/bin/python" "$installed/python/shop.py" ;;
        node) node "$installed/node/shop.js" ;;
        go) "$installed/go/shop" ;;
        ruby) "$(with_pg)" examples/ruby/shop.rb ;;
        *) die "there is no example in $1." ;;
    esac
}

shown() { awk '/^```/ { inside = ($0 == "```text"); next } inside' examples/README.md; }

stop_cluster() { scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true; }

# Checks each example in its own database, which the page's own command prepares.
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
    [ "$language" != go ] || build_go examples/go "$installed/go/shop"
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
