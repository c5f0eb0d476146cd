# shellcheck shell=bash disable=SC2154,SC2164 # stores.sh sources it, has `installed`, and ends at a failure
# Keyv's own tests come as a package. express-session's came only with its first version, and are run on the current
# one; connect-redis contains the test of its store.
packages_of stores-node test/package-lock.json test/package*.json -- npm ci --silent --no-audit --no-fund --ignore-scripts
export folder=$installed/stores-node
rm -rf "$folder/tests"
cp -r test "$folder/tests"

# Packs the package, so that the tests run on the files that the registry would contain.
# shellcheck disable=SC2317 # a separate shell calls it and ends at a failure
packed() {
    local name
    name=$(npm pack --silent --pack-destination "$folder")
    rm -rf "$folder/node_modules/pgcache-stores"
    mkdir "$folder/node_modules/pgcache-stores"
    tar -xzf "$folder/$name" -C "$folder/node_modules/pgcache-stores" --strip-components=1
}
export -f packed
one 'it packs' bash -euo pipefail -c packed
cd "$folder/tests"

psql -X -q -o /dev/null <<SQL
SELECT cache_create('texts'), cache_create('texts_memory', storage => 'memory'), cache_create('graced', grace => '1 minute'),
       cache_create('bytes', value_type => 'bytea'), cache_create('bytes_memory', storage => 'memory', value_type => 'bytea');
SQL

cp ../node_modules/connect-redis/index_test.ts connect-redis
# The test file has Windows line endings.
mkdir express-session/test
tr -d '\r' <../node_modules/express-session-with-tests/test/session.js >express-session/test/session.js

# Runs the code of the page, in its own database.
# shellcheck disable=SC2317 # as above
page() {
    psql -X -q -c 'CREATE DATABASE page'
    export PGDATABASE=page
    [ "$(block sql 1 | psql -X -qAt)" = $'keyv\nsessions' ]
    [ "$(psql -X -qAt -c "SELECT touch_after FROM pgcache.caches WHERE cache = 'sessions'::regclass")" = 0.1 ]
    psql -X -q -o /dev/null -c "SELECT cache_create('blobs', value_type => 'bytea')"
    { block js 1 && echo 'await keyv.disconnect()'; } >page1.mjs
    [ "$(node page1.mjs)" = '{ price: 24 }' ]
    [ "$(psql -X -qAt -c "SELECT cache_get_json('shop:tea', 'keyv') -> 'value'")" = '{"price": 24}' ]
    { block js 2 && echo 'await keyv.set("a", new Set([1])); console.log(await keyv.get("a")); await keyv.disconnect()'; } >page2.mjs
    [ "$(node page2.mjs)" = 'Set(1) { 1 }' ]
    {
        block js 3 && echo 'const makeReport = async () => ({ of: "today" })' && block js 4
        echo 'console.log(report, await cache.get("report")); await store.disconnect()'
    } >page3.mjs
    [ "$(node page3.mjs)" = "{ of: 'today' } { of: 'today' }" ]
    {
        echo 'import connect from "connect"; const app = connect()' && block js 5
        cat express-session/visits.js
    } >page4.mjs
    [ "$(node page4.mjs)" = '1 2' ]
    [ "$(psql -X -qAt -c "SELECT count(*) FROM cache_keys('sess:', cache => 'sessions')")" = 1 ]
    { echo 'const render = async path => "page " + path' && block js 6 && echo 'console.log(page); await pages.end()'; } >page5.mjs
    [ "$(node page5.mjs)" = $'/home 10\npage /home' ]
}

vitest() { timeout "$patience" ../node_modules/.bin/vitest run "$@"; }
# `defaults` is left out, because it reads the settings of a Redis client.
connect_redis() { CACHE=$1 BYTES=${2:-} vitest connect-redis -t '^(setup|redis|teardown)'; }
# Retried, because its tests of maxAge compare whole seconds, so each fails now and then, with its own MemoryStore,
# too. All tests are run again, because they share a counter: a single test that is retried never passes.
express_session() {
    local try
    for try in 1 2 3 4 5; do
        echo "try $try"
        CACHE=$1 BYTES=${2:-} timeout "$patience" ../node_modules/.bin/mocha --no-deprecation express-session/test/session.js && return
    done
    return 1
}

page_shows
one "express-session's own tests of its own store" express_session ''
one "Keyv's own tests" vitest keyv.test.js
one "express-session's own tests, text" express_session texts
one "express-session's own tests, bytes in memory" express_session bytes_memory yes
one "connect-redis' own test, text in memory" connect_redis texts_memory
one "connect-redis' own test, bytes" connect_redis bytes yes
one 'what those do not ask' vitest stores.test.js
one 'after a restart' vitest restart.test.js

export PGHOST=$POOLED_HOST PGPORT=$POOLED_PORT POOLED=yes
one "Keyv's own tests, through pgbouncer" vitest keyv.test.js
one "express-session's own tests, through pgbouncer" express_session bytes yes
one "connect-redis' own test, through pgbouncer" connect_redis texts
one 'what those do not ask, through pgbouncer' vitest stores.test.js
one 'after a restart, through pgbouncer' vitest restart.test.js
