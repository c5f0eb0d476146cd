#!/usr/bin/env bash
# `make valgrind`: runs the regression tests on a server under valgrind's memcheck, with direct access and with plans.
# Fails if memcheck finds a fault below a frame of pgcache. Faults in Postgres alone are only counted and shown. Uses a
# Postgres with assertions, because it informs valgrind which parts of its memory are free or not yet written.
#
# Environment: PG=17 for another major that has a source package; REGRESS="entries fetch" for fewer files;
# SESSIONS="fetch:: leases::" for session tests as well, PARTS=sessions for these alone.
. "$(dirname "$0")/head.sh"
. scripts/checked.sh
PARTS=" ${PARTS:-regress${SESSIONS:+ sessions}} "
need rust server valgrind
need_files 4096 'make valgrind'

found=$RUN/memcheck
export PGCACHE_POSTGRES=$found/postgres PGCTLTIMEOUT=600
# Lets the test of leases use three times as many keys as there are leases at the default pgcache.hot_size, instead of a
# hundred times as many.
export PGCACHE_LEASE_KEYS=3000

# Replaces the server's program with valgrind, with one log for each process.
write_wrapper() {
    rm -rf "$found"
    mkdir -p "$found/logs"
    cat >"$PGCACHE_POSTGRES" <<WRAPPER
#!/bin/sh
exec valgrind --quiet --leak-check=no --num-callers=40 --error-limit=no --error-markers=FAULT,END \\
    --suppressions='$(dirname "$("$PG_CONFIG" --bindir)")/share/valgrind.supp' --log-file='$found/logs/%p.log' \\
    '$BINDIR/postgres' "\$@"
WRAPPER
    chmod 755 "$PGCACHE_POSTGRES"
    [ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$found/logs"
}

stop_cluster() { scripts/cluster.sh remove valgrind >/dev/null 2>&1 || true; }

# Runs in a subshell, because variables that point at this cluster must not reach the session tests. errexit does not
# work here, because step reads the status.
regress() (
    stop_cluster
    scripts/cluster.sh start valgrind 'max_prepared_transactions = 10' 'pgcache.expire_interval = 0' \
        "pgcache.table_path = '$1'" || exit
    eval "$(scripts/cluster.sh env valgrind)"
    make -s installcheck ISOLATION= ${REGRESS:+REGRESS="$REGRESS"} PG_CONFIG="$PG_CONFIG"
)

# shellcheck disable=SC2086 # one word a module
sessions() { PGCACHE_PRELOAD=1 PGCACHE_TABLE_PATH=auto session_tests $SESSIONS; }

# Prints faults whose stack has a frame of pgcache: a line of Rust source, or the library if it has no line numbers.
faults() {
    cat "$found"/logs/*.log 2>/dev/null | awk -v ours="$1" '
        /FAULT/ { inside = 1; text = ""; mine = 0 }
        inside { text = text "\n" $0; if (/\.rs:[0-9]+\)|pgcache\.so/) mine = 1 }
        /END/ && inside { inside = 0; if (mine == ours) print text }'
}

trap stop_cluster EXIT
step build nice make -s all PG_CONFIG="$PG_CONFIG"
step stage scripts/stage.sh
write_wrapper
good=0
bad=0
# NAME COMMAND...: runs tests as a step and reports each test in its log.
tests() {
    local name=$1 passed unpassed status=0
    step "$@" || status=$?
    read -r passed unpassed < <(results "$LOG/$name.log")
    [ $status = 0 ] || [ "$unpassed" -gt 0 ] || unpassed=1
    good=$((good + passed)) bad=$((bad + unpassed))
}
if [[ $PARTS == *' regress '* ]]; then
    tests valgrind-regress regress auto
    tests valgrind-regress-over-plans regress plan
    stop_cluster
fi
[[ $PARTS != *' sessions '* ]] || tests valgrind-sessions sessions

logs=$(find "$found/logs" -name '*.log' | wc -l)
[ "$logs" -gt 10 ] || die "only $logs processes ran under valgrind: see $LOG/valgrind-regress.log."
faults 0 >"$LOG/valgrind-postgres.log"
faults 1 >"$LOG/valgrind-pgcache.log"
count() { grep -c FAULT "$LOG/valgrind-$1.log" || true; }
head -n 200 "$LOG/valgrind-pgcache.log"
say "valgrind: $(count pgcache) faults below pgcache and $(count postgres) in Postgres alone, in $logs processes (logs: $found/logs)"
printf '%d passed, %d failed\n' "$good" $((bad + $(count pgcache)))
[ ! -s "$LOG/valgrind-pgcache.log" ] && [ $bad = 0 ]
