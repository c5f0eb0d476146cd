#!/usr/bin/env bash
# Tests global transactions (XA) on caches of two databases, with a transaction manager from Maven: commits, rollbacks,
# a branch that refuses to commit, and a manager that dies between the two phases. In the last case the server is
# restarted and the manager's recovery decides the transaction. Compares the program's output with t/xa/expected.
#
# Usage: xa.sh
. "$(dirname "$0")/head.sh"
need server maven
[ -n "${PGCACHE_BINDIR:-}" ] || scripts/stage.sh >/dev/null
. scripts/languages.sh
lock_packages
sources=$ROOT/t/xa
cluster=xa
work=$RUN/xa-log

libraries_of xa "$sources"
mkdir -p "$installed/xa/classes"
javac -nowarn -d "$installed/xa/classes" -cp "$installed/xa/lib/*" "$sources/Xa.java"

free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

stop_all() {
    scripts/cluster.sh remove $cluster >/dev/null 2>&1 || true
    rm -rf "$work"
}

# MODE: runs the program. Its transaction manager keeps its log from run to run.
program() {
    local store=ObjectStoreEnvironmentBean
    java -XX:TieredStopAtLevel=1 -Djava.util.logging.config.file=/dev/null \
        -D$store.objectStoreDir="$work" -D$store.communicationStore.objectStoreDir="$work" -D$store.stateStore.objectStoreDir="$work" \
        -DCoreEnvironmentBean.nodeIdentifier=1 -DJTAEnvironmentBean.xaRecoveryNodes=1 \
        -DRecoveryEnvironmentBean.recoveryBackoffPeriod=1 -DRecoveryEnvironmentBean.recoveryListener=NO \
        -cp "$installed/xa/classes:$installed/xa/lib/*" Xa "$1" 8>&- 2>>"$work/stderr"
}

prepared() {
    local database
    for database in xa_one xa_two; do
        psql -X -qAt -d $database -c "SELECT cache FROM pgcache.prepared WHERE cache = 'c'::regclass"
    done | wc -l
}

trap stop_all EXIT
stop_all
mkdir -p "$work"
PGCACHE_PORT=$(free_port)
export PGCACHE_PORT
scripts/cluster.sh start $cluster "listen_addresses = '127.0.0.1'" 'max_prepared_transactions = 10' \
    "shared_preload_libraries = 'pgcache'" 8>&- # JDBC does not support unix sockets
eval "$(scripts/cluster.sh env $cluster)"
for database in xa_one xa_two; do
    psql -X -q -c "CREATE DATABASE $database"
    psql -X -q -d $database -c 'CREATE EXTENSION pgcache' -c "SELECT cache_create('c', storage => 'logged')" \
        -c "SELECT cache_set('k', 'old', cache => 'c')" >/dev/null
done
from=$(date +%s%3N)
{
    program run
    program halt
    scripts/cluster.sh stop $cluster >/dev/null
    scripts/cluster.sh start $cluster 8>&- >/dev/null
    echo "$(prepared) prepared in c"
    program recover
    echo "$(prepared) prepared in c"
} >"$work/printed" || true
verdict=ok
diff "$sources/expected" "$work/printed" || { verdict=FAILED && cat "$work/stderr"; }
echo "test xa/narayana ... $verdict $(($(date +%s%3N) - from)) ms"
[ $verdict = ok ]
