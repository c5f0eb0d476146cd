# shellcheck shell=bash
# Sourced inside a clean system by the checks of packages: tests that the extension works without preload and with
# preload. The caller must define a command `restart` that restarts the server.
#
#   smoke FILE COMMAND...     FILE: settings that the server reads; COMMAND: how psql is called

sql() { "${psql[@]}" -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

expect() {
    local wanted=$1 got
    got=$(sql -c "$2")
    [ "$got" = "$wanted" ] || { echo "$2 gave '$got', not '$wanted'"; exit 1; }
}

smoke() {
    local settings=$1
    psql=("${@:2}")
    restart
    # The warning about the missing preload is expected.
    sql -c 'CREATE EXTENSION pgcache' 2>/dev/null
    sql -c "SELECT cache_set('a', 'table')" >/dev/null
    expect table "SELECT cache_get('a')"
    expect 0 "SELECT size FROM pgcache.hot_tier"

    echo "shared_preload_libraries = 'pgcache'" >>"$settings"
    restart
    expect table "SELECT cache_get('a')"
    expect t "SELECT size > 0 FROM pgcache.hot_tier"
    sql -c "SELECT cache_create('m', storage => 'memory')" -c "SELECT cache_set('b', 'memory', cache => 'm')" >/dev/null
    expect memory "SELECT cache_get('b', 'm')"
    expect 0 "SELECT count(*) FROM pgcache.verify('pgcache.main')"
    sql -c 'DROP EXTENSION pgcache CASCADE' 2>/dev/null
}
