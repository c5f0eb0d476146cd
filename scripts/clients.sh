#!/usr/bin/env bash
# Runs unchanged Redis clients, and frameworks that cache in Redis, against Redis and against pgcache, and compares
# their output: first without a password, then as a role with a password. The Redis protocol and the frameworks are
# configured as docs/redis-clients.md shows. Then it runs the recipes of docs/client-side-caching.md in the languages of
# these programs: a client's own cache over a table, and a row that changes.
#
# Usage: clients.sh PROGRAM...      those of t/clients/programs
. "$(dirname "$0")/head.sh"
page=docs/redis-clients.md
recipes=$PWD/docs/client-side-caching.md
sources=t/clients
patience=100

# The languages of these programs, in the words of need.sh.
languages=()
for program in "$@"; do
    needs=$(awk -v program="$program" '$1 == program { print $2 }' $sources/programs)
    [ -n "$needs" ] || die "there is no program $program: $sources/programs lists them."
    # shellcheck disable=SC2206 # words
    [ "$needs" = - ] || languages+=(${needs//,/ })
done
mapfile -t languages < <(printf '%s\n' ${languages[@]+"${languages[@]}"} | sort -u)
need server redis "${languages[@]}"
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
lock_packages
sources=$ROOT/$sources

fetch() {
    case $1 in
        # Django's own tests come only with its source.
        python)
            # shellcheck disable=SC2016 # for the shell that packages_of starts
            packages_of clients-python "$sources/python/requirements.txt" "$sources"/python/* -- sh -c \
                'python3 -m venv --clear venv && venv/bin/pip install -q --disable-pip-version-check -r requirements.txt &&
                 venv/bin/pip download -q --disable-pip-version-check --no-deps --no-binary django -d . "$(grep "^Django==" requirements.txt)" &&
                 rm -rf tests && tar -xzf django-*.tar.gz --strip-components=1 --wildcards "*/tests" && rm django-*.tar.gz'
            ;;
        node)
            packages_of clients-node "$sources/node/package-lock.json" "$sources"/node/* -- \
                npm ci --silent --no-audit --no-fund
            ;;
        go)
            mkdir -p "$installed/clients-go"
            build_go "$sources/go" "$installed/clients-go/clients"
            ;;
        rust)
            CARGO_TARGET_DIR=$installed/clients-rust nice cargo build --quiet --locked --manifest-path "$sources/rust/Cargo.toml"
            ;;
        maven)
            libraries_of clients-java "$sources/java"
            mkdir -p "$installed/clients-java/classes"
            javac -nowarn -d "$installed/clients-java/classes" -cp "$installed/clients-java/lib/*" "$sources"/java/*.java
            ;;
    esac
}

# LANGUAGE HEADING [NUMBER]: prints the first block in the language under this heading of the page, or the block with
# the number.
block() {
    awk -v fence="\`\`\`$1" -v heading="## $2" -v number="${3:-1}" '
        /^```/ { inside = (under && $0 == fence && ++seen == number); next }
        inside { print; next }
        /^## / { under = ($0 == heading) }' "$page"
}

# LANGUAGE HEADING: prints the same block with the address and the credentials of REDIS_URL.
# shellcheck disable=SC2317 # run calls it
configured() {
    local address=${REDIS_URL#redis://} shown
    shown=$(block "$1" "$2")
    [[ $shown == *app:secret@localhost:6379* ]] || die "under $2 $page shows no block of $1 with the URL."
    sed -e "s#redis://app:secret@localhost:6379/0#$REDIS_URL#; s#tcp://app:secret@localhost:6379#tcp://${address%/*}#; s#'database' => 0#'database' => ${address#*/}#" <<<"$shown"
}

# PROGRAM: runs the program in the current folder, which belongs to it alone.
# shellcheck disable=SC2317 # run_at calls it, in a shell that can be ended
run() {
    local python=$installed/clients-python java=(java -XX:TieredStopAtLevel=1 -cp "$installed/clients-java/classes:$installed/clients-java/lib/*")
    case $1 in
        redis-cli) "$sources/shell/redis_cli.sh" ;;
        redis-py) "$python/venv/bin/python" "$sources/python/redis_py.py" ;;
        django)
            configured python Django >settings.py
            "$python/venv/bin/python" "$sources/python/django_cache.py"
            ;;
        celery | celery-table)
            { configured python Celery && block python Celery 2; } >celeryconfig.py
            cp "$sources/python/celery_results.py" .
            "$python/venv/bin/python" celery_results.py
            ;;
        # Print each test and its result. The tests choose the database themselves, and report on standard error.
        django-tests)
            REDIS_URL=${REDIS_URL%/*} PYTHONPATH=$python "$python/venv/bin/python" "$python/tests/runtests.py" \
                --settings settings_of_tests --parallel 1 -v 2 cache.tests.RedisCacheTests 2>all || { cat all && false; }
            grep -oE '^test\w+|\.\.\. .*$' all
            ;;
        node-redis | node-redis-cached | ioredis | stores)
            ln -s "$installed/clients-node/node_modules" . && cp "$sources"/node/*.mjs .
            configured js Node.js >caches.mjs
            node "${1//-/_}.mjs"
            ;;
        go-redis | rueidis | rueidis-cached) "$installed/clients-go/clients" "$1" ;;
        redis-rs) "$installed/clients-rust/debug/clients" ;;
        jedis) "${java[@]}" JedisSheet ;;
        spring)
            configured properties Spring >application.properties
            "${java[@]}" SpringCache
            ;;
        redis-rb) "$(with_gem redis)" "$sources/ruby/redis_rb.rb" ;;
        rails)
            configured ruby Rails >production.rb
            "$(with_gem active_support)" "$sources/ruby/rails.rb"
            ;;
        phpredis | predis) php "$sources/php/$1.php" ;;
        laravel)
            { echo '<?php' && configured php Laravel; } >database.php
            php "$sources/php/laravel.php"
            ;;
    esac
}

# Prints the Ruby that has the gem, because the gem may be installed for only one of two Rubies, for example as a
# package for the system's Ruby.
# shellcheck disable=SC2317 # run calls it
with_gem() { if ruby -r"$1" -e '' 2>/dev/null; then echo ruby; else echo /usr/bin/ruby; fi; }

# PROGRAM SERVER URL: runs the program in a separate folder, and writes its output to `out`.
run_at() (
    mkdir -p "$work/$1/$2"
    cd "$work/$1/$2"
    rm -rf -- *
    export REDIS_URL=$3
    export -f run configured block with_gem die
    export sources installed page=$ROOT/$page
    # shellcheck disable=SC2016 # for the shell within
    timeout "$patience" bash -euo pipefail -c 'run "$1"' bash "$1" >out 2>err
)

# PROGRAM MODE CREDENTIALS NUMBER: checks the program with the Redis database of this number.
check() {
    local name=$1 mode=$2 from verdict=FAILED failures=0 redis door
    from=$(date +%s%3N)
    run_at "$name" redis "redis://${3}127.0.0.1:$redis_port/$4" 8>&- &
    redis=$!
    run_at "$name" door "redis://${3}127.0.0.1:$door_port/$4" 8>&- &
    door=$!
    wait $redis || { echo "$name fails against Redis:" && tail -n 20 "$work/$name/redis/out" "$work/$name/redis/err" && failures=1; }
    wait $door || { echo "$name fails against the door:" && tail -n 20 "$work/$name/door/out" "$work/$name/door/err" && failures=1; }
    if [ $failures = 0 ] && [ "$(wc -l <"$work/$name/door/out")" -ge 8 ] && diff "$work/$name/redis/out" "$work/$name/door/out"; then
        verdict=ok
    fi
    echo "test clients/$name, $mode ... $verdict $(($(date +%s%3N) - from)) ms"
    [ $verdict = ok ]
}

# Starts the server with the page's configuration. Adds a Redis database for each program, and a role that needs no
# password.
start_door() {
    local caches=pgcache.resp number conf tables=0
    for ((number = 1; number <= count; number++)); do [ "${programs[number - 1]}" != celery-table ] || tables=$number; done
    for ((number = 1; number <= count; number++)); do caches+=",public.c$number"; done
    caches+=,shop.product_pages
    {
        echo 'local all all trust'
        block text Before 2
        echo 'host all guest 127.0.0.1/32 trust'
        echo 'host all shop 127.0.0.1/32 scram-sha-256'
    } >"$work/pg_hba.conf"
    mapfile -t conf < <(block text Before | sed "s/6379/$door_port/")
    scripts/cluster.sh start $cluster "${conf[@]}" "pgcache.resp_caches = '$caches'" "hba_file = '$work/pg_hba.conf'" "pgcache.resp_default_role = 'guest'" 8>&-
    eval "$(scripts/cluster.sh env $cluster)"
    psql -X -q -v ON_ERROR_STOP=1 -f - <<SQL >/dev/null
$(block sql Before)
$(block sql Before 2)
CREATE ROLE guest LOGIN;
SELECT cache_create('public.c' || i, storage => CASE i WHEN $tables THEN 'logged' ELSE 'memory' END, value_type => 'bytea')
  FROM generate_series(1, $count) AS i;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA public, pgcache TO guest;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA public TO app;
$(page=$recipes block sql 'A table and its cache')
SQL
}

# LANGUAGE HEADING: prints the recipe with the address of this server and the database of its cache.
recipe() {
    page=$recipes block "$1" "$2" | sed -e "s#localhost:6379/0#127.0.0.1:$door_port/$((count + 1))#" \
        -e "s#\"localhost\", 6379#\"127.0.0.1\", $door_port#; s#builder().protocol#builder().database($((count + 1))).protocol#"
}

# LANGUAGE: runs the recipe. Prints the page three times, how often the client's own cache had it, and the result of the
# next read after the row has changed.
shown_by() {
    local update='UPDATE shop.products SET price = price + 1 WHERE id = 1'
    case $1 in
        python)
            recipe python Python >recipe.py
            cat >>recipe.py <<PY
import os
print(page(1).decode(), page(1).decode(), page(1).decode(), client.get_cache().size)
os.system("psql -X -q -c '$update'")
print(client.get("product:1"))
PY
            "$installed/clients-python/venv/bin/python" recipe.py
            ;;
        js)
            ln -s "$installed/clients-node/node_modules" .
            recipe js JavaScript >recipe.mjs
            cat >>recipe.mjs <<JS
import { execSync } from 'node:child_process'
console.log(await page(1), await page(1), await page(1), clientSideCache.stats().hitCount)
execSync("psql -X -q -c '$update'")
await client.ping()
console.log(await client.get('product:1'))
await client.close()
JS
            node recipe.mjs
            ;;
        go)
            cp "$sources"/go/go.{mod,sum} .
            {
                printf '%s\n' 'package main' 'import ("context"; "fmt"; "os/exec"; "time"; "github.com/redis/rueidis")'
                recipe go Go
                cat <<GO
func main() {
	ctx := context.Background()
	option, _ := rueidis.ParseURL("redis://shop:secret@127.0.0.1:$door_port/$((count + 1))")
	client, err := rueidis.NewClient(option)
	if err != nil {
		panic(err)
	}
	for range 3 {
		fmt.Print(page(ctx, client, 1))
		fmt.Print(" ")
	}
	fmt.Println(client.DoCache(ctx, client.B().Get().Key("product:1").Cache(), time.Hour).IsCacheHit())
	_ = exec.Command("psql", "-X", "-q", "-c", "$update").Run()
	for tries := 0; tries < 500 && client.DoCache(ctx, client.B().Get().Key("product:1").Cache(), time.Hour).Error() == nil; tries++ {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(client.DoCache(ctx, client.B().Get().Key("product:1").Cache(), time.Hour).ToString())
}
GO
            } >recipe.go
            build_go . "$PWD/recipe"
            ./recipe
            ;;
        java)
            recipe java Java >Pages.java
            cat >>Pages.java <<JAVA
class Main {
    public static void main(String[] none) throws Exception {
        var pages = new Pages();
        System.out.println(pages.page(1) + pages.page(1) + pages.page(1) + " " + pages.client.getCache().getStats().getHitCount());
        new ProcessBuilder("psql", "-X", "-q", "-c", "$update").start().waitFor();
        for (int tries = 0; tries < 500 && pages.client.get("product:1") != null; tries++) {
            Thread.sleep(10);
        }
        System.out.println(pages.client.get("product:1"));
    }
}
JAVA
            javac -nowarn -d classes -cp "$installed/clients-java/lib/*" Pages.java
            java -XX:TieredStopAtLevel=1 -cp "classes:$installed/clients-java/lib/*" Main
            ;;
    esac
}

# LANGUAGE LAST: checks that the recipe prints the page three times and then LAST, which shows that the page came from
# memory, and that the page is gone after the change.
check_recipe() {
    local from verdict=FAILED folder=$work/recipe-$1
    from=$(date +%s%3N)
    mkdir -p "$folder"
    psql -X -q -c 'TRUNCATE shop.product_pages'
    if (set -e; cd "$folder" && shown_by "$1" >out 2>err) && [ "$(grep -o 'the page of 1' "$folder/out" | wc -l)" = 3 ] &&
        [ "$(sed -n '1s/.* //p' "$folder/out")" = "$2" ] && tail -n 1 "$folder/out" | grep -qE '^(None|null|.*redis nil message)$'; then
        verdict=ok
    else
        cat "$folder/out" "$folder/err"
    fi
    echo "test clients/client-side caching in $1 ... $verdict $(($(date +%s%3N) - from)) ms"
    [ $verdict = ok ]
}

start_redis() {
    printf '%s\n' "port $redis_port" 'bind 127.0.0.1' "databases $((count + 1))" 'save ""' "dir $work" \
        'user app on >secret ~* &* +@all' >"$work/redis.conf"
    redis-server "$work/redis.conf" 8>&- >"$work/redis.log" &
    redis_pid=$!
}

answers() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(redis-cli -p "$1" ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    die "nothing answers on port $1."
}

stop_all() {
    [ -z "${redis_pid:-}" ] || kill "$redis_pid" 2>/dev/null || true
    scripts/cluster.sh remove $cluster >/dev/null 2>&1 || true
    rm -rf "$work"
}

cluster=clients
work=$RUN/clients-programs
count=$# programs=("$@")
trap stop_all EXIT
stop_all
mkdir -p "$work"
for language in "${languages[@]}"; do
    fetch "$language"
done
door_port=$(free_port)
redis_port=$(free_port)
start_redis
start_door
answers "$redis_port"
answers "$door_port"

failed=0
# Django's tests sleep most of the time, so they run in the background, in database 0, which no other program uses.
background=
if [[ " $* " == *" django-tests "* ]]; then
    check django-tests 'with a password' app:secret@ 0 >"$work/django-tests.log" 2>&1 &
    background=$!
fi
for mode in 'without a password' 'with a password'; do
    credentials=
    [ "$mode" = 'without a password' ] || credentials=app:secret@
    number=0
    for program in "$@"; do
        number=$((number + 1))
        [ "$program" = django-tests ] || check "$program" "$mode" "$credentials" $number || failed=1
    done
done
for language in "${languages[@]}"; do
    case $language in
        python) check_recipe python 1 || failed=1 ;;
        node) check_recipe js 1 || failed=1 ;;
        go) check_recipe go true || failed=1 ;;
        maven) check_recipe java 1 || failed=1 ;;
    esac
done
[ -z "$background" ] || { wait "$background" || failed=1; cat "$work/django-tests.log"; }
exit $failed
