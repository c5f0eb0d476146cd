#!/usr/bin/env bash
# Runs real software over tables of its own that pgcache has attached, in a throwaway cluster, and compares what it
# prints with what examples/attach/README.md shows. Its packages go to the cache folder, not into the checkout.
#
# Usage: attached.sh [PROGRAM...]      cache_table.py, sessions.js, keyv.js; all of them when none is named
. "$(dirname "$0")/head.sh"
need server python node
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
[ $# -gt 0 ] || set -- cache_table.py sessions.js keyv.js

installed=$(scripts/cache-dir.sh)/examples/attach
cluster=attached
mkdir -p "$installed"
exec 8>"$installed/lock"
flock 8

lists="requirements.txt package.json"
cp examples/attach/* "$installed"
if ! (cd examples/attach && cat $lists) | cmp -s - "$installed/.installed"; then
    say "fetching the packages of attached tables' software"
    (cd "$installed" && python3 -m venv --clear venv &&
        venv/bin/pip install -q --disable-pip-version-check -r requirements.txt &&
        npm install --silent --no-audit --no-fund --no-package-lock) || die "the packages could not be fetched: check the network."
    (cd examples/attach && cat $lists) >"$installed/.installed"
fi

# What the page shows below the line that names the program.
shown() {
    awk -v program="$1" '$0 == program { here = 1 } /^```/ { inside = here && $0 == "```text"; if (!inside && $0 == "```") here = 0; next } inside' \
        examples/attach/README.md
}

run() {
    case $1 in
        *.py) (cd "$installed" && venv/bin/python "$1") ;;
        *.js) (cd "$installed" && node "$1") ;;
        *) die "there is no program $1." ;;
    esac
}

stop_cluster() { scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true; }

failed=0
trap stop_cluster EXIT
stop_cluster
scripts/cluster.sh start "$cluster" 8>&-
eval "$(scripts/cluster.sh env "$cluster")"
for program in "$@"; do
    name=${program%.*} verdict=FAILED
    psql -X -q -c "CREATE DATABASE $name"
    psql -X -q -d "$name" -c "CREATE EXTENSION pgcache"
    if diff <(shown "$program") <(PGDATABASE=$name run "$program" 2>&1) && [ -n "$(shown "$program")" ]; then
        verdict=ok
    else
        failed=1
    fi
    echo "test examples/attach/$program ... $verdict"
done
exit $failed
