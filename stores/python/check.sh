# shellcheck shell=bash disable=SC2154 # stores.sh gives the rest
. "$ROOT/stores/python/packages.sh"
flask_caching=$suites/flask_caching/tests

# SUITE FILE...: runs these files with the conftest of that suite.
# shellcheck disable=SC2317 # one calls it
suite() { PYTHONPATH=$site:$PWD/tests:$suites/$1/tests "$python" -m pytest -q -p no:cacheprovider "${@:2}"; }

# WAYS SUITE FILE...: runs the ways of tests/ways.py in parallel, because they mostly sleep and each has its own
# cache.
# shellcheck disable=SC2317
in_ways() {
    local way failed=0 running=()
    for way in $1; do
        WAY=$way timeout "$patience" bash -c 'suite "$@"' suite "${@:2}" >"$work/python-$way.log" 2>&1 &
        running+=($!)
    done
    for way in $1; do
        wait "${running[0]}" || failed=1
        running=("${running[@]:1}")
        echo "== $way"
        cat "$work/python-$way.log"
    done
    return $failed
}

# Runs the code of the page, in its own database.
# shellcheck disable=SC2317
page() {
    local number
    psql -X -q -c 'CREATE DATABASE page_of_python'
    block sql 1 | PGDATABASE=page_of_python psql -X -q -o /dev/null -v ON_ERROR_STOP=1
    for number in 1 2 3; do
        block python $number | sed 's/dbname=shop/dbname=page_of_python/' >"$work/page$number.py"
    done
    echo 'print(report(10), report(10), region.get("__main__:report|10"))' >>"$work/page1.py"
    echo 'print(app.test_client().get("/").text, cache.get("view//"))' >>"$work/page2.py"
    [ "$(PYTHONPATH=$site "$python" "$work/page1.py")" = '45 45 45' ]
    [ "$(PYTHONPATH=$site "$python" "$work/page2.py")" = 'Hello Hello' ]
    [ "$(PYTHONPATH=$site "$python" "$work/page3.py")" = $'b\'Hello\'\nb\'a value that takes long\'' ]
}
all='unlogged memory pooled pooled_memory'
export -f suite
export site suites python PYTHONDONTWRITEBYTECODE=1

one 'the package builds: sdist and wheel' build_packages "$ROOT/stores/python"
for way in $all; do
    storage=$([[ $way == *memory ]] && echo memory || echo unlogged)
    psql -X -q -c "SELECT cache_create('$way', value_type => 'bytea', storage => '$storage')" \
        -c "SELECT cache_create('${way}_text', storage => '$storage')" >/dev/null
done
page_shows
one "dogpile.cache's own tests of backends, serializers and mutexes" in_ways "$all" dogpile_cache tests/suite_dogpile.py
one "cachelib's own tests of caches" in_ways "$all" cachelib tests/suite_cachelib.py
one "Flask-Caching's own tests of backends" in_ways "$all" flask_caching tests/suite_flask.py
one "Flask-Caching's own tests of views, functions and templates" \
    in_ways 'unlogged pooled_memory' flask_caching -p in_place_of_simple \
    "$flask_caching"/test_{cache,hash_method,memoize,signals,subclassing,templates,view}.py
one 'broken sessions, forks, leases, ttls, a restart' suite dogpile_cache tests/test_sessions.py
