# shellcheck shell=bash disable=SC2154,SC2164 # stores.sh gives the rest
. "$ROOT/stores/python/packages.sh"

# WAY:CACHE...: runs Django's tests and ours in these ways of tests/settings.py, each on the cache of that name. They
# run in parallel, because they mostly sleep and each has its own cache.
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

# Runs the code of the page, in its own project and database.
# shellcheck disable=SC2317
page() {
    local manage=("$python" manage.py)
    psql -X -q -c 'CREATE DATABASE page_of_django'
    mkdir "$work/page"
    cd "$work/page"
    unset DJANGO_SETTINGS_MODULE
    export PYTHONPATH=$site
    "$python" -m django startproject shop .
    "${manage[@]}" startapp orders
    {
        echo "DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'page_of_django', 'USER': '$PGUSER', 'HOST': '$PGHOST', 'PORT': '$PGPORT'}}"
        block python 1
        echo 'INSTALLED_APPS += ["orders"]'
    } >>shop/settings.py
    "${manage[@]}" migrate django_pgcache
    block python 2 >orders/migrations/0001_initial.py
    "${manage[@]}" migrate
    "${manage[@]}" shell -c 'from django.core.cache import cache; assert cache.get_or_set("a", lambda: {1}) == cache.get("a") == {1}'
    [ "$(PGDATABASE=page_of_django psql -X -qAt -c "SELECT storage, touch_after FROM pgcache.caches WHERE cache IN ('pages'::regclass, 'reports'::regclass) ORDER BY cache::text")" = $'unlogged|0.1\nmemory|' ]
}

one 'the packages build: sdist and wheel' build_packages "$ROOT/stores/python" "$ROOT/stores/django"
export PYTHONPATH=$site:$suites/django/tests:$PWD/tests PYTHONDONTWRITEBYTECODE=1 DJANGO_SETTINGS_MODULE=settings python site
page_shows
psql -X -q -c "SELECT cache_create('unlogged', value_type => 'bytea'), cache_create('texts')" \
    -c "SELECT cache_create('memory', storage => 'memory', value_type => 'bytea')" >/dev/null
one "Django's own tests of caches and sessions: memory, pooled and unlogged, migrated, in the transaction" \
    all_ways direct:memory pooled:unlogged migrated: transaction:
one 'a restart of the server' env STORE=migrated STORE_CACHE=unlogged "$python" tests/restart.py
one 'a restart of the server behind a pooler' env STORE=pooled STORE_CACHE=unlogged "$python" tests/restart.py
