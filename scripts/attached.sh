#!/usr/bin/env bash
# Runs real software over its own tables in a throwaway cluster, after pgcache has attached the tables as caches.
# Compares the output with examples/attach/README.md. Packages from pip and npm go to the cache folder, not into the
# checkout; PHP needs packages of the distribution.
#
# Usage: attached.sh [PROGRAM...]      cache_table.py, sessions.js, keyv.js, laravel.php, symfony.php; all if none is
#                                      named
. "$(dirname "$0")/head.sh"
[ $# -gt 0 ] || set -- cache_table.py sessions.js keyv.js laravel.php symfony.php

wanted=()
for program in "$@"; do
    case $program in
        *.py) wanted+=(python) ;;
        *.js) wanted+=(node) ;;
        laravel.php) wanted+=(laravel) ;;
        symfony.php) wanted+=(symfony-cache) ;;
        *) die "there is no program $program." ;;
    esac
done
need server "${wanted[@]}"
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
lock_packages

fetch() {
    local source=examples/attach
    case $1 in
        python)
            packages_of attach-python $source/requirements.txt $source/*.py $source/requirements.txt -- sh -c \
                'python3 -m venv --clear venv && venv/bin/pip install -q --disable-pip-version-check -r requirements.txt'
            ;;
        node)
            packages_of attach-node $source/package.json $source/*.js $source/package.json -- \
                npm install --silent --no-audit --no-fund --no-package-lock
            ;;
    esac
}

run() {
    case $1 in
        *.py) "$installed/attach-python/venv/bin/python" "$installed/attach-python/$1" ;;
        *.js) node "$installed/attach-node/$1" ;;
        *.php) php "examples/attach/$1" ;;
    esac
}

# Prints the output that the page shows below the line with the program's name.
shown() {
    awk -v program="$1" '$0 == program { here = 1 } /^```/ { inside = here && $0 == "```text"; if (!inside && $0 == "```") here = 0; next } inside' \
        examples/attach/README.md
}

stop_cluster() { scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true; }

# Checks a program in its own database.
check() {
    local program=$1 name=${1%.*} verdict=FAILED from
    from=$(date +%s%3N)
    psql -X -q -c "CREATE DATABASE $name"
    export PGDATABASE=$name
    psql -X -q -c 'CREATE EXTENSION pgcache'
    if diff <(shown "$program") <(run "$program" 2>&1) && [ -n "$(shown "$program")" ]; then
        verdict=ok
    else
        failed=1
    fi
    echo "test examples/attach/$program ... $verdict $(($(date +%s%3N) - from)) ms"
}

for what in "${wanted[@]}"; do
    fetch "$what"
done

cluster=attached
failed=0
trap stop_cluster EXIT
stop_cluster
# Sweeps run only when a program calls cache_expire, so that the programs find expired rows.
scripts/cluster.sh start "$cluster" 'pgcache.expire_interval = 0' 8>&-
eval "$(scripts/cluster.sh env "$cluster")"
for program in "$@"; do
    check "$program"
done
exit $failed
