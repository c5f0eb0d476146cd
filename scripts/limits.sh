# shellcheck shell=bash
# Sourced by env.sh and by the benchmarks: sets the same resource limits for every user. An ordinary user may have 1,024
# open files where root may have 20,000, and a session of the tests takes four.
#
#   need_files NUMBER 'who needs them'     says what is missing where even the hard limit is lower

# Enough for the tests and benchmarks. The hard limit itself may be a thousand million, and programs that close every
# possible file descriptor would then take minutes to start.
FILES_WANTED=16384

# Raises a soft limit towards the hard one: raise n 16384
raise() {
    local soft hard
    soft=$(ulimit -S"$1") hard=$(ulimit -H"$1")
    [ "$soft" != unlimited ] && [ "$soft" -lt "$2" ] || return 0
    if [ "$hard" = unlimited ] || [ "$hard" -gt "$2" ]; then hard=$2; fi
    ulimit -S"$1" "$hard" || true
}
raise n $FILES_WANTED
raise u $FILES_WANTED

need_files() {
    local limit
    limit=$(ulimit -n)
    [ "$limit" = unlimited ] || [ "$limit" -ge "$1" ] ||
        die "$2 needs $1 open files in one process and the hard limit is $limit (ulimit -Hn): raise it to $1 or more, with 'nofile' in /etc/security/limits.conf, LimitNOFILE= of the service or --ulimit nofile= of the container."
}

# Where a server of the user's own listens, and how they like their psql, is no business of ours: libpq, initdb
# and the server read all of these. PG and PG_CONFIG are how the caller picks a Postgres.
for variable in $(compgen -e PG | grep -vE '^(PG|PG_CONFIG|PGCACHE_.*|PGRX_.*|PGCTLTIMEOUT)$' || true); do
    unset "$variable"
done
unset variable PSQLRC PSQL_HISTORY

# How long pg_ctl waits for a server: its own 60 s are short on a machine that has much else to do.
export PGCTLTIMEOUT=${PGCTLTIMEOUT:-180}

# Messages are compared, and pg_ctl and perl complain of a locale that is named and not installed.
export LC_ALL=C.UTF-8
unset LANGUAGE
