# shellcheck shell=bash
# Verifies that pgcache does not change the rest of the server: Postgres' own regression and isolation tests must give
# the same results with pgcache preloaded (and its worker on) as without it.
#
# The tests come from the source package of this major, the server and pg_regress from PG_CONFIG; only regress.so is
# compiled. If a test fails in both runs, the cause is the machine. If its results differ, the cause is pgcache.
#
# With `attached`, pgcache is preloaded in both runs, and all plain tables get the columns of a cache
# (postgres-attached/tables.sql). In the second run the tables are attached as caches, and the tables of test_setup
# contain expired copies of some of their rows. Rows and errors must be the same; postgres-attached/compare.py removes
# the kinds of differences that docs/internals/hiding.md names.
#
# Usage: check.sh postgres [attached]        environment: PG, PG_CONFIG as in the Makefile
need rust server postgres-source python

mode=${1:-}
[ -z "$mode" ] || [ "$mode" = attached ] || die "check.sh postgres knows no '$mode'."
version=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9.]*\).*/\1/')
source=$(scripts/cache-dir.sh)/postgres-$version.tests
pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
work=$RUN/postgres-tests
ours=scripts/postgres-attached

# Keeps only the folder with the tests, because the whole tree is ten times as large. If the tests belong to another
# minor version, tests of behaviour that was fixed in between fail.
fetch_tests() {
    [ ! -e "$source/regress/parallel_schedule" ] || return 0
    scripts/source-package.sh "postgresql-$PG_MAJOR" "postgresql-$PG_MAJOR" "$source.whole" || return
    grep -qx "PACKAGE_VERSION='$version'" "$source.whole/configure" ||
        say "the source package is not of $version: some tests may fail in both runs"
    rm -rf "$source"
    mv "$source.whole/src/test" "$source" && rm -rf "$source.whole"
}

# Adds a test to each schedule, which prepares the database before all other tests. In the regression schedule it runs
# after test_setup.
lay_out_attached() {
    local regress=$work/regress isolation=$work/isolation
    {
        echo '\set ECHO none'
        cat $ours/tables.sql $ours/setup.sql
    } >"$regress/sql/attached.sql"
    echo '\set ECHO none' >"$regress/expected/attached.out"
    sed -i 's/^test: test_setup$/&\ntest: attached/' "$regress/parallel_schedule"
    {
        echo 'setup {' && cat $ours/tables.sql && echo '}'
        echo 'session s' && echo 'step nothing { SELECT; }' && echo 'permutation nothing'
    } >"$isolation/specs/attached.spec"
    printf '%s\n' 'Parsed test spec with 1 sessions' '' 'starting permutation: nothing' 'step nothing: SELECT;' '--' '(1 row)' '' \
        >"$isolation/expected/attached.out"
    sed -i '1i test: attached' "$isolation/isolation_schedule"
    grep -qx 'test: attached' "$regress/parallel_schedule"
}

# The server's user reads the input, and the server writes beside it. The tests also load two libraries of contrib; on a
# server without contrib these tests fail in both runs.
lay_out() {
    rm -rf "$work" &&
        mkdir -p "$work" &&
        cp -r "$source/regress" "$source/isolation" "$work/" &&
        { [ -z "$mode" ] || lay_out_attached; } &&
        printf '%s\n' 'MODULES = regress' 'override with_llvm = no' "PGXS = $("$PG_CONFIG" --pgxs)" "include \$(PGXS)" |
        make -s -C "$work/regress" -f - PG_CONFIG="$PG_CONFIG" &&
        ln -s "$("$PG_CONFIG" --pkglibdir)"/{autoinc,refint}.so "$work/regress/" &&
        if [ -n "$SERVER_USER" ]; then chown -R "$SERVER_USER" "$work"; fi
}

in_cluster() (
    eval "$(scripts/cluster.sh env postgres-check)"
    as_server env PATH="$PATH" PGHOST="$PGHOST" PGPORT="$PGPORT" PGUSER="$PGUSER" "$@"
)

# NAME KIND PROGRAM SCHEDULE DATABASE: runs a suite. Ignores the failure of pg_regress after a failed test, because only
# the comparison counts.
suite() {
    local name=$1 kind=$2 status=0
    as_server mkdir -p "$work/$name-$kind" || return
    in_cluster "$pgxs/src/test/$3" --inputdir="$work/$kind" --outputdir="$work/$name-$kind" \
        --bindir="$BINDIR" --dlpath="$work/regress" --max-concurrent-tests=20 --dbname="$5" \
        --schedule="$work/$kind/$4" || status=$?
    [ "$status" -le 1 ]
}

# NAME LIBRARIES [LINE...]: runs both suites. errexit does not work here, because step reads the status. The worker
# serves a database that has the extension.
run() {
    scripts/cluster.sh remove postgres-check &&
        scripts/cluster.sh start postgres-check 'max_prepared_transactions = 10' "shared_preload_libraries = '$2'" "${@:3}" &&
        { [ -z "$2" ] || in_cluster psql -X -q -d postgres -c 'CREATE EXTENSION pgcache'; } &&
        suite "$1" regress regress/pg_regress parallel_schedule regression &&
        suite "$1" isolation isolation/pg_isolation_regress isolation_schedule isolation_regression &&
        { [ $# = 2 ] || tables_of "$1"; } &&
        scripts/cluster.sh remove postgres-check
}

# Writes to a file how many tables could be attached, and why the other tables could not.
tables_of() {
    local database
    for database in regression isolation_regression; do
        in_cluster psql -X -qAt -d $database -c \
            'SELECT count(*), refused FROM attached.tables GROUP BY refused ORDER BY count DESC'
    done >"$LOG/postgres-check-$1.tables"
}

# Prints "ok NAME" or "failed NAME" for each test, from the lines of Postgres 15 and of 16 and later.
verdicts() {
    sed -nE -e 's/^(test|    ) +([^ ]+) +\.\.\. (ok|FAILED).*/\3 \2/p' -e 's/^(not )?ok [0-9]+ +[-+] ([^ ]+) .*/\1ok \2/p' "$LOG/$1.log" |
        sed -E 's/^(FAILED|not ok)/failed/' | sort
}

# KIND: compares the outputs of the two runs, each of which has its own folder.
same() { step "postgres-compare-$1" $ours/compare.py "$work/plain-$1/results" "$work/attached-$1/results"; }

# Runs Postgres' tests over plain tables and over attached tables.
check_attached() {
    local attached status=0
    step postgres-check-plain run plain pgcache 'tests.attach = off' 'pgcache.expire_interval = 0'
    step postgres-check-attached run attached pgcache 'tests.attach = on' 'pgcache.expire_interval = 0'
    attached=$(awk -F'|' '$2 == "" { sum += $1 } END { print sum + 0 }' "$LOG/postgres-check-attached.tables")
    [ "$attached" -gt 3000 ] || die "only $attached tables were attached: see $LOG/postgres-check-attached.tables."
    same regress || status=1
    same isolation || status=1
    [ $status = 0 ] || die "attached tables show differences that docs/internals/hiding.md does not name: see above."
    say "Postgres $PG_MAJOR: $attached tables of its own tests attached; rows and errors are the same"
}

# Runs Postgres' tests with pgcache preloaded and without.
check_preloaded() {
    local count failed
    step postgres-check-without run without ''
    step postgres-check-with run with pgcache
    verdicts postgres-check-without >"$LOG/postgres-check-without.results"
    verdicts postgres-check-with >"$LOG/postgres-check-with.results"
    count=$(wc -l <"$LOG/postgres-check-without.results")
    [ "$count" -gt 250 ] || die "only $count of Postgres' own tests reported a result: see $LOG/postgres-check-without.log."
    if ! diff "$LOG/postgres-check-without.results" "$LOG/postgres-check-with.results"; then
        die "Postgres' own tests differ with pgcache preloaded: see above, and $work/with-*/regression.diffs."
    fi
    failed=$(grep -c '^failed' "$LOG/postgres-check-with.results" || true)
    grep '^failed' "$LOG/postgres-check-with.results" || true
    [ "$failed" != 0 ] || rm -rf "$work"
    say "Postgres $PG_MAJOR: $((count - failed)) of its own $count tests pass with pgcache preloaded, the same as without"
}

trap 'scripts/cluster.sh remove postgres-check >/dev/null 2>&1 || true' EXIT
build_and_stage
step postgres-tests fetch_tests
step postgres-tests-laid-out lay_out
"check_${mode:-preloaded}"
