#!/usr/bin/env bash
# Makes random calls of every SQL function (t/tests/fuzz.rs), more than `make test` does, in databases of four
# encodings, with and without preload. Also runs random statements, to which direct access and plans must give the same
# answers (t/tests/differential.rs). The same seed makes the same calls.
#
# Usage: fuzz-sql.sh [CALLS [SEED]]      default: 20000 calls in each database and a seed from the clock.
#                                        SQLSMITH=SECONDS also runs Debian's sqlsmith for that time.
. "$(dirname "$0")/head.sh"
need rust server
scripts/stage.sh

calls=${1:-20000} seed=${2:-$(date +%s)}
say "$calls calls in each database, seed $seed"
for preload in 1 0; do
    PGCACHE_PRELOAD=$preload PGCACHE_FUZZ_CALLS=$calls PGCACHE_FUZZ_SEED=$seed session_tests random_calls --nocapture
done
PGCACHE_TWIN_ROUNDS=$((calls / 100)) PGCACHE_TWIN_SEED=$seed session_tests both_paths_answer_and_store_the_same --nocapture

[ -n "${SQLSMITH:-}" ] || exit 0

# sqlsmith makes whole queries, which the fuzzer above does not. It stops when the server stops; errors of its queries
# are expected.
need sqlsmith
trap 'scripts/cluster.sh remove sqlsmith' EXIT
scripts/cluster.sh remove sqlsmith
scripts/cluster.sh start sqlsmith "shared_preload_libraries = 'pgcache'" 'statement_timeout = 2s' 'max_connections = 20' \
    'log_min_messages = error' 'log_min_error_statement = panic'
scripts/cluster.sh psql sqlsmith -q -c "CREATE EXTENSION pgcache" -c "SELECT cache_create('u'), cache_create('j', value_type => 'jsonb'), \
    cache_create('m', storage => 'memory')" -c "SELECT cache_set('k' || i, 'v', cache => c) FROM generate_series(1, 100) i, \
    unnest('{u,m}'::regclass[]) c" >/dev/null
eval "$(scripts/cluster.sh env sqlsmith)"
say "sqlsmith for $SQLSMITH s, seed $seed"
timeout "$SQLSMITH" sqlsmith --seed="$seed" --target="host=$PGHOST port=$PGPORT user=postgres dbname=postgres" \
    >"$LOG/sqlsmith.log" 2>&1 || true
tail -n 3 "$LOG/sqlsmith.log"
! as_server grep -E 'terminated by signal|PANIC|TRAP' "$RUN/sqlsmith/log" || die "the server crashed: see $RUN/sqlsmith/log."
differences=$(scripts/cluster.sh psql sqlsmith -At -c "SELECT count(*) FROM pgcache.all_caches a JOIN pg_class c ON c.oid = a.cache \
    AND c.relkind = 'r', LATERAL pgcache.verify(a.cache)" -c "SELECT pending FROM pgcache.hot_tier" | tr '\n' ' ')
[ "$differences" = '0 0 ' ] || die "differences and marks at the end: $differences"
say 'no crash, no difference, no mark'
