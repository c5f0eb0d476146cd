#!/usr/bin/env bash
# Proves that pgcache is no surprise to the rest of the server: the regression and isolation tests of
# Postgres itself give the same results with pgcache preloaded (its worker on) as without.
#
# The tests come from the source package of this major, the server and pg_regress from PG_CONFIG; nothing
# but regress.so is compiled. A test that fails in both runs is the machine's; one that differs is ours.
#
# Usage: postgres-check.sh        environment: PG, PG_CONFIG as in the Makefile
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh rust server postgres-source
. scripts/env.sh
. scripts/step.sh

version=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9.]*\).*/\1/')
source=$(scripts/cache-dir.sh)/postgres-$version.tests
pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
work=$RUN/postgres-tests

# Only the folder of the tests is kept: the whole tree is ten times as large.
fetch_tests() {
    [ ! -e "$source/regress/parallel_schedule" ] || return 0
    scripts/source-package.sh "postgresql-$PG_MAJOR" "postgresql-$PG_MAJOR" "$source.whole" &&
        same_version "$source.whole/configure" &&
        rm -rf "$source" &&
        mv "$source.whole/src/test" "$source" &&
        rm -rf "$source.whole"
}

# Tests of another minor version fail where behaviour was mended.
same_version() { grep -qx "PACKAGE_VERSION='$version'" "$1" || say "the source package is not of $version: some tests may fail in both runs"; }

# The server's user reads the input, and the server itself writes beside it.
lay_out() {
    rm -rf "$work" &&
        mkdir -p "$work" &&
        cp -r "$source/regress" "$source/isolation" "$work/" &&
        compile_library &&
        lend_libraries &&
        if [ -n "$SERVER_USER" ]; then chown -R "$SERVER_USER" "$work"; fi
}

compile_library() {
    make -s -C "$work/regress" -f - PG_CONFIG="$PG_CONFIG" <<'MAKE'
MODULES = regress
PGXS := $(shell $(PG_CONFIG) --pgxs)
override with_llvm = no
include $(PGXS)
MAKE
}

# Two of contrib that the tests load, too; a server without contrib fails that test in both runs.
lend_libraries() {
    local name
    for name in autoinc refint; do
        ln -s "$("$PG_CONFIG" --pkglibdir)/$name.so" "$work/regress/"
    done
}

in_cluster() (
    eval "$(scripts/cluster.sh env postgres-check)"
    as_server env PATH="$PATH" PGHOST="$PGHOST" PGPORT="$PGPORT" PGUSER="$PGUSER" "$@"
)

declare -A schedule=([regress]=parallel_schedule [isolation]=isolation_schedule)

# pg_regress fails when one test fails; what counts here is the comparison.
suite() {
    local name=$1 kind=$2 program=$3 database=$4 status=0
    in_cluster "$pgxs/src/test/$program" --inputdir="$work/$kind" --outputdir="$work/$name-$kind" \
        --bindir="$BINDIR" --dlpath="$work/regress" --max-concurrent-tests=20 --dbname="$database" \
        --schedule="$work/$kind/${schedule[$kind]}" || status=$?
    [ "$status" -le 1 ]
}

# No errexit in here: step asks for the status.
run() {
    local name=$1 libraries=$2
    as_server mkdir -p "$work/$name-regress" "$work/$name-isolation" &&
        scripts/cluster.sh remove postgres-check &&
        scripts/cluster.sh start postgres-check 'max_prepared_transactions = 10' "shared_preload_libraries = '$libraries'" &&
        make_extension "$libraries" &&
        suite "$name" regress regress/pg_regress regression &&
        suite "$name" isolation isolation/pg_isolation_regress isolation_regression &&
        scripts/cluster.sh remove postgres-check
}

# The worker serves a database that has the extension.
make_extension() { [ -z "$1" ] || in_cluster psql -X -q -d postgres -c 'CREATE EXTENSION pgcache'; }

# "ok NAME" and "failed NAME", from the lines of Postgres 15 and of 16 and later.
results() {
    sed -nE -e 's/^(test|    ) +([^ ]+) +\.\.\. ok .*/ok \2/p' -e 's/^(test|    ) +([^ ]+) +\.\.\. FAILED.*/failed \2/p' \
        -e 's/^ok [0-9]+ +[-+] ([^ ]+) .*/ok \1/p' -e 's/^not ok [0-9]+ +[-+] ([^ ]+) .*/failed \1/p' "$LOG/$1.log" | sort
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
