# shellcheck shell=bash disable=SC2154 # what run.sh assigns
# Sourced by run.sh, which names cluster, pool, seconds, entries, some, tiers, crowds, smoke. Each function prints one table.

tear_down() {
    stop_pooler
    scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true
}

# A fresh server with these lines in its configuration, a database with the extension, and two functions: `took`,
# milliseconds of a query; `noise`, a value that does not compress.
begin() {
    scripts/cluster.sh remove "$cluster" >/dev/null 2>&1 || true
    scripts/cluster.sh start "$cluster" 'fsync = on' 'max_connections = 150' "$@"
    eval "$(scripts/cluster.sh env "$cluster")"
    ask 'CREATE EXTENSION pgcache' "CREATE FUNCTION took(query text) RETURNS numeric LANGUAGE plpgsql AS \$\$
        DECLARE began timestamptz := clock_timestamp();
        BEGIN EXECUTE query; RETURN round(extract(epoch FROM clock_timestamp() - began) * 1000, 3); END \$\$" \
        "CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS
        \$\$ SELECT left(string_agg(md5(random()::text), ''), bytes) FROM generate_series(0, bytes / 32) \$\$" >/dev/null
}

ask() {
    local statements=() statement
    for statement in "$@"; do statements+=(-c "$statement"); done
    psql -X -q -A -t -F $'\t' -v ON_ERROR_STOP=1 "${statements[@]}"
}

# per_second SCRIPT [pgbench options]
per_second() {
    local script=$1 told
    shift
    told=$(printf '%s\n' "$script" | pgbench -n -T "$seconds" -j 2 "$@" -f - 2>&1) || { echo "$told" >&2 && return 1; }
    sed -n 's/^tps = \([0-9]*\).*/\1/p' <<<"$told"
}

must() { [ "$1" = "$2" ] || { echo "bench/tuning: $3 is $1 and not $2" >&2 && return 1; }; }

line() { printf '|' && printf ' %s |' "$@" && echo; }

# table TITLE COLUMN...
table() {
    printf '\n## %s\n\n' "$1"
    shift
    line "$@"
    printf '|' && printf '%s' "${@/*/---|}" && echo
}

# row CELL...     one of them may be several, as psql prints columns
row() {
    local cell parts cells=()
    for cell in "$@"; do
        IFS=$'\t' read -r -a parts <<<"$cell"
        cells+=("${parts[@]}")
    done
    line "${cells[@]}"
}

ground() {
    echo "# Figures for tuning"
    echo
    printf '%s; %s, %s cores; load when the run began: %s. Clients share the machine; unix socket; %s s a run.\n' \
        "$(postgres --version | sed 's/^postgres (PostgreSQL) /Postgres /')" \
        "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)" "$seconds"
}

# How many entries does a tier hold?
room() {
    local bytes many
    table "Entries of a memory cache in a tier of 64 MB, keys of 36 bytes" \
        "bytes of a value" "entries" "bytes of the tier for each"
    for bytes in 0 37 100 512 1000 4000 64000; do
        many=$((64 * 1048576 * 3 / 2 / (100 + bytes)))
        [ "$smoke" = 0 ] || many=$some
        ask "SELECT cache_create('room', storage => 'memory')" \
            "SELECT count(cache_set(lpad(i::text, 36, 'k'), repeat('v', $bytes), cache => 'room'))
               FROM generate_series(1, $many) AS i" >/dev/null
        row "$bytes" "$(ask "SELECT hot_entries, (SELECT size FROM pgcache.hot_tier) / hot_entries
            FROM pgcache.stats WHERE cache = 'room'::regclass")"
        ask "SELECT cache_drop('room')" >/dev/null
    done
}

# ids_of STATEMENT: how many transaction ids it takes, in a session of its own
ids_of() {
    local before after
    before=$(ask 'SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint')
    ask "$1" >/dev/null
    after=$(ask 'SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint')
    echo $((after - before))
}

transaction_ids() {
    local call taken want
    table "Transaction ids" "statement" "ids"
    ask "SELECT cache_create('t'), cache_create('m', storage => 'memory')" "ALTER SYSTEM SET pgcache.expire_interval = 0" \
        "ALTER SYSTEM SET autovacuum = off" "SELECT pg_reload_conf()" "SELECT cache_set('k', '1', cache => 't'), cache_rate_limit('full', 1, '1 hour', 't')" >/dev/null
    sleep 1
    while IFS='@' read -r want call; do
        taken=$(ids_of "SELECT count(*) FROM ($call) AS calls")
        must "$taken" "$want" "the number of transaction ids of $call"
        row "\`$call\`" "$taken"
    done <<'CALLS'
1@SELECT cache_set('k', '1', cache => 't')
1@SELECT cache_set(format('k%s', i), '1', cache => 't') FROM generate_series(1, 1000) AS i
1@SELECT cache_set_many(array_agg(format('k%s', i)), array_agg(text '1'), cache => 't') FROM generate_series(1, 1000) AS i
1@SELECT cache_get_touch('k', '1 hour', 't')
0@SELECT cache_get_touch('k', cache => 't')
0@SELECT cache_get('k', 't')
0@SELECT cache_fetch('k', 'SELECT 1', cache => 't')
0@SELECT cache_delete('absent', 't')
1@SELECT cache_add('k', '1', cache => 't')
0@SELECT cache_replace('absent', '1', cache => 't')
0@SELECT cache_rate_limit('full', 1, '1 hour', 't')
0@SELECT cache_set('k', '1', cache => 'm')
0@SELECT cache_incr('n', cache => 'm')
CALLS
    ask "SELECT cache_drop('t'), cache_drop('m')" "ALTER SYSTEM RESET pgcache.expire_interval" "ALTER SYSTEM RESET autovacuum" \
        "SELECT pg_reload_conf()" >/dev/null
}

# What most of the statements below store, and a key at random, as pgbench draws it.
value="'value of thirty-seven bytes, all told!'"
drawn() { echo "\\set n random(1, $some)"; }

# What does a batch save, and what the flush at each commit? 8 clients, keys at random, one transaction a statement.
batches() {
    table "Entries set in a second, by entries in one cache_set_many" "storage" "cache_set" "10" "100"
    batches_of unlogged unlogged
    batches_of logged logged
    PGOPTIONS='-c synchronous_commit=off' batches_of logged 'logged, synchronous_commit = off'
    batches_of memory memory
}

# batches_of STORAGE LABEL
batches_of() {
    local size script set
    ask "SELECT cache_create('b', storage => '$1')" >/dev/null
    set=("$(per_second "$(drawn)
SELECT cache_set('k' || :n, $value, cache => 'b');" -M prepared -c 8)")
    for size in 10 100; do
        script="$(drawn)
SELECT cache_set_many(array_agg('k' || (i * 7919 + :n) % $some), array_agg(text $value), cache => 'b')
  FROM generate_series(1, $size) AS i;"
        set+=("$(($(per_second "$script" -M prepared -c 8) * size))")
    done
    row "$2" "${set[@]}"
    ask "SELECT cache_drop('b')" >/dev/null
}

# The same for gets. The arrays lie ready in a table, so that no time goes into making them.
batched_gets() {
    local size
    table "Entries read in a second, by keys in one cache_get_many" "read from" "cache_get" "10" "100"
    for size in 10 100; do
        ask "CREATE UNLOGGED TABLE keys_$size AS SELECT n, array_agg('k' || (n * $size + i) * 7919 % $some) AS keys
                FROM generate_series(0, $((some / size - 1))) AS n, generate_series(0, $((size - 1))) AS i GROUP BY n" \
            "ALTER TABLE keys_$size ADD PRIMARY KEY (n)" "VACUUM ANALYZE keys_$size" >/dev/null
    done
    batched_gets_of unlogged 'the hot tier'
    PGOPTIONS='-c pgcache.hot_tier=off' batched_gets_of unlogged 'an unlogged table'
    batched_gets_of memory 'a memory cache'
    ask "DROP TABLE keys_10, keys_100" >/dev/null
}

# batched_gets_of STORAGE LABEL
batched_gets_of() {
    local size script gets
    ask "SELECT cache_create('b', storage => '$1')" \
        "SELECT count(cache_set('k' || i, $value, cache => 'b')) FROM generate_series(0, $some - 1) AS i" \
        "SELECT count(cache_get('k' || i, 'b')) FROM generate_series(0, $some - 1) AS i" >/dev/null
    gets=("$(per_second "\\set n random(0, $some - 1)
SELECT cache_get('k' || :n, 'b');" -M prepared -c 8)")
    for size in 10 100; do
        script="\\set n random(0, $((some / size - 1)))
SELECT count(value) FROM keys_$size, cache_get_many(keys, 'b') WHERE n = :n;"
        gets+=("$(($(per_second "$script" -M prepared -c 8) * size))")
    done
    row "$2" "${gets[@]}"
    ask "SELECT cache_drop('b')" >/dev/null
}

# Overwrites at full speed, with the worker: do they stay HOT, does the table stay small?
fillfactor() {
    local factor sets before after
    table "$some entries overwritten by 8 clients for $((seconds * 3)) s" \
        "fillfactor" "sets/s" "HOT updates" "MB when loaded" "MB in the end"
    for factor in 70 85 100; do
        ask "SELECT cache_create('f')" "ALTER TABLE f SET (fillfactor = $factor)" \
            "INSERT INTO f SELECT 'k' || i, $value FROM generate_series(1, $some) AS i" "VACUUM f" >/dev/null
        before=$(ask "SELECT round(pg_total_relation_size('f') / 1e6, 1)")
        sets=$(seconds=$((seconds * 3)) per_second "$(drawn)
SELECT cache_set('k' || :n, $value, cache => 'f');" -M prepared -c 8)
        sleep 1
        after=$(ask "SELECT round(100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1), 1) || ' %',
            round(pg_total_relation_size('f') / 1e6, 1) FROM pg_stat_user_tables WHERE relname = 'f'")
        row "$factor" "$sets" "${after%$'\t'*}" "$before" "${after#*$'\t'}"
        ask "SELECT cache_drop('f')" >/dev/null
    done
}

# Without the worker: autovacuum alone, which here looks each second. A tenth of the entries dies between two looks.
autovacuum() {
    local factor values before kind run=$((seconds * 5))
    table "Autovacuum alone for $run s, looking each second; a tenth of the entries is overwritten in each" \
        "autovacuum_vacuum_scale_factor" "$((some / 20)) values of 8 kB: MB when loaded" "in the end" \
        "$some of 100 B, the deadline indexed: MB when loaded" "in the end"
    ask "ALTER SYSTEM SET autovacuum_naptime = 1" "ALTER SYSTEM SET pgcache.expire_interval = 0" "SELECT pg_reload_conf()" \
        "CREATE TABLE noises AS SELECT n, noise(8000) AS long, noise(100) AS short FROM generate_series(1, 20) AS n" >/dev/null
    for factor in 0.2 0.02 0.005; do
        local cells=()
        for kind in long short; do
            ask "SELECT cache_create('d')" \
                "ALTER TABLE d SET (autovacuum_vacuum_scale_factor = $factor, toast.autovacuum_vacuum_scale_factor = $factor)" >/dev/null
            # An index on the deadline ends HOT updates: each version of a short row is left to VACUUM.
            values=$((some / 20))
            [ $kind = long ] || { values=$some && ask "CREATE INDEX ON d (expires_at)" >/dev/null; }
            ask "INSERT INTO d SELECT 'k' || i, $kind, now() + interval '1 hour' FROM generate_series(1, $values) AS i
                JOIN noises ON n = 1 + i % 20" "VACUUM d" >/dev/null
            before=$(ask "SELECT round(pg_total_relation_size('d') / 1e6, 1)")
            seconds=$run per_second "\\set n random(1, $values)
\\set v random(1, 20)
SELECT cache_set('k' || :n, (SELECT $kind FROM noises WHERE n = :v), '1 hour', 'd');" \
                -M prepared -c 4 -R $((values / 10)) >/dev/null
            cells+=("$before" "$(ask "SELECT round(pg_total_relation_size('d') / 1e6, 1)")")
            ask "SELECT cache_drop('d')" >/dev/null
        done
        row $factor "${cells[@]}"
    done
    ask "DROP TABLE noises" "ALTER SYSTEM RESET autovacuum_naptime" "ALTER SYSTEM RESET pgcache.expire_interval" \
        "SELECT pg_reload_conf()" >/dev/null
}

# What does a sweep of the whole table cost?
sweeps() {
    local tenth=$((entries / 10))
    table "A sweep of $entries entries by cache_expire" "expired" "ms"
    ask "ALTER SYSTEM SET pgcache.expire_interval = 0" "SELECT pg_reload_conf()" "SELECT cache_create('s')" \
        "INSERT INTO s SELECT 'k' || i, $value FROM generate_series(1, $entries) AS i" "VACUUM s" >/dev/null
    row 0 "$(ask "SELECT took('SELECT cache_expire(''s'', 10000000)')")"
    ask "UPDATE s SET expires_at = now() WHERE abs(hashtext(key)) % 10 = 0"
    row "about $tenth, all over the table" "$(ask "SELECT took('SELECT cache_expire(''s'', 10000000)')")"
    ask "SELECT cache_drop('s')" "ALTER SYSTEM RESET pgcache.expire_interval" "SELECT pg_reload_conf()" >/dev/null
}

# each_of MANY HOT_TIER: microseconds for each of them, the second time that all are read
each_of() {
    ask "SET pgcache.hot_tier = $2" "SELECT count(length(cache_get(k, 'v'))) FROM keys" \
        "SELECT round(took('SELECT count(length(cache_get(k, ''v''))) FROM keys') * 1000 / $1, 1)" | tail -n 1
}

# A get inside of a query, from the tier and from the table.
long_values() {
    local bytes many
    table "Microseconds for a get inside of a query" "bytes of a value" "from the tier" "from the table"
    for bytes in 100 1000 10000 100000 1000000; do
        many=$((20000000 / bytes))
        [ "$many" -lt 5000 ] || many=5000
        ask "SELECT cache_create('v')" "CREATE TABLE keys AS SELECT 'k' || i AS k FROM generate_series(1, $many) AS i" \
            "SELECT count(cache_set(k, noise($bytes), cache => 'v')) FROM keys" >/dev/null
        row "$bytes" "$(each_of "$many" on)" "$(each_of "$many" off)"
        ask "SELECT cache_drop('v')" "DROP TABLE keys" >/dev/null
    done
}

# As a daemon: it is known by its pid file alone, and holds no pipe of ours open.
start_pooler() {
    mkdir -p "$pool"
    [ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$pool"
    printf '%s\n' '[databases]' "* = host=$PGHOST port=$PGPORT user=postgres" '[pgbouncer]' 'listen_addr =' 'listen_port = 6432' \
        "unix_socket_dir = $pool" "logfile = $pool/log" "pidfile = $pool/pid" 'auth_type = any' 'pool_mode = transaction' \
        'default_pool_size = 8' 'max_client_conn = 200' >"$pool/ini"
    as_server env PATH="$PATH:/usr/sbin" pgbouncer -q -d "$pool/ini"
    for _ in {1..100}; do
        PGHOST=$pool PGPORT=6432 psql -X -c 'SELECT 1' >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "bench/tuning: pgbouncer did not start" >&2
    return 1
}

stop_pooler() {
    [ ! -e "$pool/pid" ] || kill -9 "$(cat "$pool/pid")" 2>/dev/null || true
    rm -rf "$pool"
}

# Hot gets by so many clients, straight and through a pool of eight sessions.
connections() {
    local clients get
    table "Hot gets in a second, by clients" \
        "clients" "prepared" "extended, unnamed" "the same through pgbouncer, 8 sessions"
    ask "SELECT cache_create('g')" "INSERT INTO g SELECT 'k' || i, $value FROM generate_series(1, $some) AS i" >/dev/null
    ask "SELECT count(cache_get('k' || i, 'g')) FROM generate_series(1, $some) AS i" >/dev/null
    get="$(drawn)
SELECT cache_get('k' || :n, 'g');"
    start_pooler
    for clients in $crowds; do
        row "$clients" "$(per_second "$get" -M prepared -c "$clients")" \
            "$(per_second "$get" -M extended -c "$clients")" \
            "$(PGHOST=$pool PGPORT=6432 per_second "$get" -M extended -c "$clients")"
    done
    stop_pooler
    ask "SELECT cache_drop('g')" >/dev/null
}

# Keys by Zipf's law: a few are asked for most of the time.
size_of_the_tier() {
    local size get tps hot
    table "$entries entries of 37 bytes in an unlogged cache, gets by Zipf's law (1.07)" \
        "hot_size, MB" "entries in the tier" "gets from the tier" "gets/s"
    get="\\set n random_zipfian(1, $entries, 1.07)
SELECT cache_get('k' || (:n * bigint '7919' % $entries), 'z');"
    for size in $tiers; do
        begin "pgcache.hot_size = '${size}MB'"
        ask "SELECT cache_create('z')" \
            "INSERT INTO z SELECT 'k' || i, $value FROM generate_series(0, $entries - 1) AS i" "VACUUM z" >/dev/null
        ask "SELECT count(cache_get('k' || i, 'z')) FROM generate_series(0, $entries - 1) AS i" >/dev/null
        per_second "$get" -M prepared -c 8 >/dev/null
        ask "SELECT pgcache.reset_stats()" >/dev/null
        tps=$(per_second "$get" -M prepared -c 8)
        hot=$(ask "SELECT hot_entries, round(100.0 * hot_hits / (hot_hits + table_hits), 1) || ' %'
            FROM pgcache.stats WHERE cache = 'z'::regclass")
        row "$size" "$hot" "$tps"
    done
}
