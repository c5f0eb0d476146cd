# shellcheck shell=bash disable=SC2154 # installed and work are stores.sh's, way is in_way's
# Runs Symfony's and Laravel's own tests from the distribution's source packages: with the versions that the
# distribution packages, and with the newest Laravel that runs on the distribution's PHP and its own tests; and our
# tests of what these do not cover. All run in parallel, because they mostly sleep.
current=10

fetch_tests() {
    local folder=$installed/store-php versions
    versions=$(dpkg-query -W -f '${Package} ${Version}\n' php-symfony-cache php-illuminate-cache && echo "Laravel $current")
    [ "$versions" != "$(cat "$folder/versions" 2>/dev/null)" ] || return 0
    mkdir -p "$folder"
    "$ROOT/scripts/source-package.sh" symfony php-symfony-cache "$folder/symfony"
    "$ROOT/scripts/source-package.sh" php-laravel-framework php-illuminate-cache "$folder/laravel"
    "$ROOT/scripts/source-package.sh" php-laravel-framework php-illuminate-cache "$folder/current" $current
    # The test is skipped without memcached; here it runs on this store.
    sed -i '/@requires extension memcached/d; /RequiresPhpExtension/d' "$folder"/{laravel,current}/tests/Integration/Cache/MemcachedTaggedCacheTest*.php
    # The number of keys is specific to Redis' own implementation of tags.
    sed -i /keyCount/d "$folder/current/tests/Integration/Cache/RedisStoreTest.php"
    echo "$versions" >"$folder/versions"
}

# Laravel's tests that are left out: those of Redis' own implementation of tags and of its connections, those of
# values in a process's memory, where texts count as numbers, too, those that move the client's clock, which the
# server does not follow, and those that require a fast machine.
left_out='testRedisCacheTags|testRedisLockCanHaveASeparateConnection|testStaleEntriesCanBeFlushed'
left_out+='|testIncrementedTagEntriesProperlyTurnStale|testPutPastTtlTagEntriesProperlyTurnStale'
left_out+='|testValuesAreStoredByReference|testValuesGetCastedByIncrementOrDecrement|testIncrementNonNumericValues'
left_out+='|testItemsCanExpire|testExpiredKeysAreIncremented|testCanAcquireLockAgainAfterExpiry|testLockExpirationLowerBoundary|testLockWithNoExpiration'
left_out+='|testCacheTtl'

# FILE...: runs these tests on the store.
phpunit_of() {
    local file
    export STORE_DSN="pgsql:host=$STORE_HOST;port=$STORE_PORT;dbname=$PGDATABASE" FRAMEWORKS=$installed/store-php
    for file in "$@"; do
        php -d zend.assertions=1 -d assert.exception=1 "$(command -v phpunit)" --bootstrap tests/bootstrap.php --cache-result-file="$work/$STORE_CACHE.phpunit" \
            --filter "^(?!.*($left_out))" "$file"
    done
}

# NAME FILE...: starts these tests in each way, each with its own cache.
begin() { each_way "php_${1//[^a-zA-Z]/_}" begin_one "$@"; }

# NAME FOLDER: starts the tests of the Laravel in this folder.
begin_laravel() {
    begin "$1" "$2"/tests/Cache/Cache{ArrayStore,TaggedCache}Test.php "$2"/tests/Integration/Cache/{RedisStore,RedisCacheLock,FileCacheLock}Test.php \
        "$2"/tests/Integration/Cache/MemcachedTaggedCacheTest*.php
}

begin_one() {
    (phpunit_of "${@:2}") 8>&- >"$work/$STORE_CACHE.out" 2>&1 &
    runs[$STORE_CACHE]=$!
    names+=("$STORE_CACHE:$1, $way")
}

ended() { wait "${runs[$1]}" || { cat "$work/$1.out" && false; }; }

# Runs the code of the page, set up as the page says, in its own database.
page() {
    local folder=$work/page_of_php
    psql -X -q -c 'CREATE DATABASE page_of_php'
    psql -X -qAt -c "SELECT 'CREATE ROLE app LOGIN' WHERE to_regrole('app') IS NULL" | psql -X -q # another page may have made it
    block sql 1 | PGDATABASE=page_of_php psql -X -q -v ON_ERROR_STOP=1
    mkdir -p "$folder/config/packages"
    block yaml 1 | sed "s/host=localhost;dbname=app/host=$PGHOST_TCP;port=$PGPORT;dbname=page_of_php/" >"$folder/config/services.yaml"
    block yaml 2 >"$folder/config/packages/cache.yaml"
    { echo '<?php return [' && block php 1 && echo '];'; } >"$folder/laravel.php"
    { echo '<?php' && block php 2 | sed "s/host=localhost;dbname=app/host=$PGHOST_TCP;port=$PGPORT;dbname=page_of_php/"; } >"$folder/outside.php"
    PGPASSWORD=none FRAMEWORKS=$installed/store-php STORE_DSN="pgsql:host=$PGHOST_TCP;port=$PGPORT;dbname=page_of_php" php tests/page.php "$folder"
}

restarts() { STORE_RESTART=1 one "the server restarts, $way" phpunit_of tests/StoreTest.php; }

fetch_tests
declare -A runs
names=()
begin "Symfony's adapter" tests/AdapterTest.php
begin "Symfony's adapter with a namespace" tests/NamespacedAdapterTest.php
begin "Symfony's tags" tests/TagAwareAdapterTest.php
begin 'PSR-16' tests/SimpleCacheTest.php
begin_laravel "Laravel's store" "$installed/store-php/laravel"
export LARAVEL=$installed/store-php/current
begin_laravel "the store of Laravel $current" "$LARAVEL"
begin 'ours with it' tests/StoreTest.php
unset LARAVEL
begin ours tests/StoreTest.php
for name in "${names[@]}"; do
    one "${name#*:}" ended "${name%%:*}"
done
in_way php_ours 'unlogged bytea direct' restarts
in_way php_ours 'unlogged bytea pooled' restarts
page_shows
