#!/usr/bin/env bash
# Proves that pgcache is no surprise to the rest of the server: the regression and isolation tests of
# Postgres itself give the same results with pgcache preloaded (its worker on) as without.
#
# The tests come from the source package of this major, the server and pg_regress from PG_CONFIG; nothing
# but regress.so is compiled. A test that fails in both runs is the machine's; one that differs is ours.
#
# Usage: postgres-check.sh        environment: PG, PG_CONFIG as in the Makefile
. "$(dirname "$0")/head.sh"
need rust server postgres-source

version=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9.]*\).*/\1/')
source=$(scripts/cache-dir.sh)/postgres-$version.tests
pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
work=$RUN/postgres-tests

# Only the folder of the tests is kept: the whole tree is ten times as large. Tests of another minor version fail
# where behaviour was mended.
fetch_tests() {
    [ ! -e "$source/regress/parallel_schedule" ] || return 0
    scripts/source-package.sh "postgresql-$PG_MAJOR" "postgresql-$PG_MAJOR" "$source.whole" || return
    grep -qx "PACKAGE_VERSION='$version'" "$source.whole/configure" ||
        say "the source package is not of $version: some tests may fail in both runs"
    rm -rf "$source"
    mv "$source.whole/src/test" "$source" && rm -rf "$source.whole"
}

# The server's user reads the input, and the server itself writes beside it. Two libraries of contrib are loaded, too;
# a server without contrib fails that test in both runs.
lay_out() {
    rm -rf "$work" &&
        mkdir -p "$work" &&
        cp -r "$source/regress" "$source/isolation" "$work/" &&
        printf '%s\n' 'MODULES = regress' 'override with_llvm = no' "PGXS = $("$PG_CONFIG" --pgxs)" "include \$(PGXS)" |
        make -s -C "$work/regress" -f - PG_CONFIG="$PG_CONFIG" &&
        ln -s "$("$PG_CONFIG" --pkglibdir)"/{autoinc,refint}.so "$work/regress/" &&
        if [ -n "$SERVER_USER" ]; then chown -R "$SERVER_USER" "$work"; fi
}

in_cluster() (
    eval "$(scripts/cluster.sh env postgres-check)"
    as_server env PATH="$PATH" PGHOST="$PGHOST" PGPORT="$PGPORT" PGUSER="$PGUSER" "$@"
)

# NAME KIND PROGRAM SCHEDULE DATABASE: pg_regress fails when one test fails; what counts here is the comparison.
suite() {
    local name=$1 kind=$2 status=0
    as_server mkdir -p "$work/$name-$kind" || return
    in_cluster "$pgxs/src/test/$3" --inputdir="$work/$kind" --outputdir="$work/$name-$kind" \
        --bindir="$BINDIR" --dlpath="$work/regress" --max-concurrent-tests=20 --dbname="$5" \
        --schedule="$work/$kind/$4" || status=$?
    [ "$status" -le 1 ]
}

# NAME LIBRARIES. No errexit in here: step asks for the status. The worker serves a database that has the extension.
run() {
    scripts/cluster.sh remove postgres-check &&
        scripts/cluster.sh start postgres-check 'max_prepared_transactions = 10' "shared_preload_libraries = '$2'" &&
        { [ -z "$2" ] || in_cluster psql -X -q -d postgres -c 'CREATE EXTENSION pgcache'; } &&
        suite "$1" regress regress/pg_regress parallel_schedule regression &&
        suite "$1" isolation isolation/pg_isolation_regress isolation_schedule isolation_regression &&
        scripts/cluster.sh remove postgres-check
}

# "ok NAME" and "failed NAME", from the lines of Postgres 15 and of 16 and later.
results() {
    sed -nE -e 's/^(test|    ) +([^ ]+) +\.\.\. (ok|FAILED).*/\3 \2/p' -e 's/^(not )?ok [0-9]+ +[-+] ([^ ]+) .*/\1ok \2/p' "$LOG/$1.log" |
        sed -E 's/^(FAILED|not ok)/failed/' | sort
}

trap 'scripts/cluster.sh remove postgres-check >/dev/null 2>&1 || true' EXIT
build_and_stage
step postgres-tests fetch_tests
step postgres-tests-laid-out lay_out
step postgres-check-without run without ''
step postgres-check-with run with pgcache

results postgres-check-without >"$LOG/postgres-check-without.results"
results postgres-check-with >"$LOG/postgres-check-with.results"
count=$(wc -l <"$LOG/postgres-check-without.results")
[ "$count" -gt 250 ] || die "only $count of Postgres' own tests reported a result: see $LOG/postgres-check-without.log."
if ! diff "$LOG/postgres-check-without.results" "$LOG/postgres-check-with.results"; then
    die "Postgres' own tests differ with pgcache preloaded: see above, and $work/with-*/regression.diffs."
fi
failed=$(grep -c '^failed' "$LOG/postgres-check-with.results" || true)
grep '^failed' "$LOG/postgres-check-with.results" || true
[ "$failed" != 0 ] || rm -rf "$work"
say "Postgres $PG_MAJOR: $((count - failed)) of its own $count tests pass with pgcache preloaded, the same as without"
