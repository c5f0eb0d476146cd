# shellcheck shell=bash disable=SC2154 # stores.sh gives the rest
. "$ROOT/stores/python/packages.sh"

# WAY:CACHE...: Django's tests and ours in these ways of tests/settings.py, on the cache of that name. Beside each
# other: they sleep most of the time, and have a cache each.
# shellcheck disable=SC2317 # one calls it
all_ways() {
    local way failed=0 ways=()
    for way in "$@"; do
        STORE=${way%:*} STORE_CACHE=${way#*:} timeout "$patience" "$python" -m django test --noinput suites own \
            >"$work/django-${way%:*}.log" 2>&1 &
        ways+=($!)
    done
    for way in "$@"; do
        wait "${ways[0]}" || failed=1
        ways=("${ways[@]:1}")
        echo "== $way"
        cat "$work/django-${way%:*}.log"
    done
    return $failed
}

one 'the packages build: sdist and wheel' build_packages "$ROOT/stores/python" "$ROOT/stores/django"
export PYTHONPATH=$site:$suites/django/tests:$PWD/tests PYTHONDONTWRITEBYTECODE=1 DJANGO_SETTINGS_MODULE=settings python
psql -X -q -c "SELECT cache_create('unlogged', value_type => 'bytea'), cache_create('texts')" \
    -c "SELECT cache_create('memory', storage => 'memory', value_type => 'bytea')" >/dev/null
one "Django's own tests of caches and sessions: memory, pooled and unlogged, migrated, in the transaction" \
    all_ways direct:memory pooled:unlogged migrated: transaction:
one 'a restart of the server' env STORE=migrated STORE_CACHE=unlogged "$python" tests/restart.py
one 'a restart of the server behind a pooler' env STORE=pooled STORE_CACHE=unlogged "$python" tests/restart.py
