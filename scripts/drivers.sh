#!/usr/bin/env bash
# Runs the programs of docs/drivers.md exactly as printed there, with the real drivers, both directly and through
# pgbouncer in transaction mode. Compares their output with the page. While a program waits for a line of input, the
# script stops the server. It starts the server again after the program has noticed.
#
# A program is the code in one language under one heading of the page.
#
# Usage: drivers.sh LANGUAGE...      python, node, go, java, ruby, php; need.sh lists what each needs
. "$(dirname "$0")/head.sh"
need server pgbouncer "$@"
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
. scripts/pooler.sh
lock_packages

page=docs/drivers.md
cluster=drivers
work=$RUN/drivers-programs
patience=120

fence() { if [ "$1" = node ]; then echo js; else echo "$1"; fi; }

# Prints the drivers of a language: the headings that have a program in the language.
drivers_in() {
    awk -v fence="\`\`\`$(fence "$1")" '/^## / { heading = substr($0, 4) } $0 == fence && !seen[heading]++ { print heading }' $page
}

# Prints the program in LANGUAGE under HEADING.
program() {
    awk -v fence="\`\`\`$(fence "$1")" -v heading="## $2" '
        /^```/ { inside = (under && $0 == fence); next }
        inside { print; next }
        /^## / { under = ($0 == heading) }' $page
}

setup() { awk '/^```/ { inside = ($0 == "```sql"); next } inside' $page; }
shown() {
    awk '/^```/ { inside = (under && $0 == "```text"); next } inside { print; next } /^## / { under = ($0 == "## The programs") }' $page
}

# LANGUAGE FOLDER: the command that runs the program in the folder. Each program has its own folder, because Go and Java
# require it.
build() {
    case $1 in
        python) run=("$installed/python/venv/bin/python" "$2/program.py") ;;
        node) ln -sfn "$installed/node/node_modules" "$2/node_modules" && run=(node "$2/program.mjs") ;;
        go) cp examples/go/go.{mod,sum} "$2" && build_go "$2" "$2/program" && run=("$2/program") ;;
        java) javac -d "$2" -cp $JDBC_JAR "$2/program.java" && run=(java -cp "$2:$JDBC_JAR" Drivers) ;;
        ruby) run=("$(with_pg)" "$2/program.rb") ;;
        php) run=(php "$2/program.php") ;;
    esac
}

ending() {
    case $1 in python) echo py ;; node) echo mjs ;; ruby) echo rb ;; *) echo "$1" ;; esac
}

stop_all() {
    stop_pooler
    scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true
    rm -rf "$work"
}

# NUMBER MODE: prepares the program's database with the page's setup, and runs the program until it waits for its line.
begin() {
    local number=$1 mode=$2 folder=$work/$1 host=127.0.0.1 port=$PGPORT database=$2_$1
    psql -X -q -c "CREATE DATABASE $database"
    psql -X -q -v ON_ERROR_STOP=1 -d "$database" -c 'CREATE EXTENSION pgcache' -f <(setup) >/dev/null
    rm -f "$folder/line"
    mkfifo "$folder/line"
    # Keep the pipe open, so that writing to it does not block if the program has ended.
    exec {line}<>"$folder/line"
    lines[number]=$line
    (
        export PGDATABASE=$database
        if [ "$mode" = pooled ]; then
            export PGHOST=$work/pooler PGPORT=$pooler_port POOLED=1
            port=$pooler_port
            alternates
        fi
        export JDBC_URL="jdbc:postgresql://$host:$port/$database?user=postgres"
        mapfile -t command <"$folder/command"
        exec "${command[@]}" <&"${lines[number]}" >"$folder/$mode" 2>&1
    ) 8>&- &
    pids[number]=$!
}

line_count() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }

# Waits until the program waits for its line, or has ended.
await_line() {
    local folder=$work/$1 mode=$2 wanted deadline=$((SECONDS + patience))
    wanted=$(($(shown | wc -l) - 1))
    while [ "$(line_count "$folder/$mode")" -lt $wanted ] && kill -0 "${pids[$1]}" 2>/dev/null; do
        [ $SECONDS -lt $deadline ] || kill "${pids[$1]}" 2>/dev/null || true
        sleep 0.1
    done
}

finish() {
    local number=$1 mode=$2 folder=$work/$1 verdict=FAILED deadline=$((SECONDS + patience))
    while kill -0 "${pids[$number]}" 2>/dev/null; do
        [ $SECONDS -lt $deadline ] || kill "${pids[$number]}" 2>/dev/null || true
        sleep 0.1
    done
    if wait "${pids[$number]}" && diff <(shown) "$folder/$mode"; then
        verdict=ok
    else
        cat "$folder/$mode"
        failed=1
    fi
    echo "test drivers/${names[$number]}, $mode ... $verdict $((($(date +%s%3N)) - from)) ms"
}

round() {
    local mode=$1 number from
    from=$(date +%s%3N)
    pids=() lines=()
    for number in "${!names[@]}"; do begin "$number" "$mode"; done
    for number in "${!names[@]}"; do await_line "$number" "$mode"; done
    scripts/cluster.sh stop $cluster
    for number in "${!names[@]}"; do echo >&"${lines[$number]}"; done
    sleep 0.3
    scripts/cluster.sh start $cluster 8>&-
    for number in "${!names[@]}"; do finish "$number" "$mode"; done
}

[ -n "$(shown)" ] || die "$page does not show what its programs print."
trap stop_all EXIT
stop_all
mkdir -p "$work"
names=()
for language in "$@"; do
    prepare "$language"
    [ -n "$(drivers_in "$language")" ] || die "$page has no program in $language."
    while read -r name; do
        folder=$work/${#names[@]}
        mkdir "$folder"
        program "$language" "$name" >"$folder/program.$(ending "$language")"
        build "$language" "$folder"
        printf '%s\n' "${run[@]}" >"$folder/command"
        names+=("$name")
    done < <(drivers_in "$language")
done

failed=0
PGCACHE_PORT=$(free_port)
export PGCACHE_PORT
pooler_port=$(free_port)
scripts/cluster.sh start $cluster "listen_addresses = '127.0.0.1'" 8>&- # JDBC does not support unix sockets
eval "$(scripts/cluster.sh env $cluster)"
round direct
start_pooler
round pooled
exit $failed
