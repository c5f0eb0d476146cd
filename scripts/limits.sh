# shellcheck shell=bash
# Sourced by env.sh and by the benchmarks: sets the same resource limits for every user. An ordinary user may open 1,024
# files where root may open 20,000, and a session of the tests needs four.
#
#   need_files NUMBER 'who needs them'     reports the shortage if even the hard limit is lower

# This is enough for the tests and benchmarks. Do not use the hard limit, which may be a thousand million: programs that
# close every possible file descriptor would take minutes to start.
FILES_WANTED=16384

# Raises a soft limit to the number, or to the hard limit if that is lower: raise n 16384
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

# libpq, initdb and the server read all these variables. The user's settings for a server and psql must not affect the
# scripts; only PG and PG_CONFIG stay, because they choose the Postgres.
for variable in $(compgen -e PG | grep -vE '^(PG|PG_CONFIG|PGCACHE_.*|PGRX_.*|PGCTLTIMEOUT)$' || true); do
    unset "$variable"
done
unset variable PSQLRC PSQL_HISTORY

# Let pg_ctl wait longer for a server than its default of 60 s, which is too short on a busy machine.
export PGCTLTIMEOUT=${PGCTLTIMEOUT:-180}

# Fix the locale: the tests compare messages, and pg_ctl and perl complain about a locale that is set but not installed.
export LC_ALL=C.UTF-8
unset LANGUAGE
