#!/usr/bin/env bash
# `make lint`: checks formatting, clippy, the shell scripts, the sources (t/lint), the pages and the prose. Cargo.toml
# and clippy.toml have the rules for the sources.
#
# Usage: lint.sh [PART...]      format clippy majors shell workflow sources pages prose compare; all if none is given
. "$(dirname "$0")/head.sh"
need rust server python

format() { cargo fmt --all --check; }

clippy() {
    CARGO_TARGET_DIR=$BUILD/target PGRX_PG_CONFIG_PATH=$PG_CONFIG nice cargo clippy --quiet --locked --workspace \
        --all-targets --no-default-features --features "pg$PG_MAJOR" -- -D warnings
}

# Checks the types for the majors that are not installed here, with the bindings that pgrx contains. All differences
# between majors are in src/pg/version.
majors() {
    local major
    if grep -rnE 'feature *= *"pg[0-9]+"' src crates --include='*.rs' | grep -v '^src/pg/version/'; then
        say "a difference between versions of Postgres stands outside of src/pg/version"
        return 1
    fi
    for major in 15 16 17 18 19; do
        [ "$major" = "$PG_MAJOR" ] ||
            DOCS_RS=1 RUSTC_WRAPPER=$ROOT/scripts/rustc-bindings.sh CARGO_TARGET_DIR=$ROOT/build/majors nice cargo check \
                --quiet --locked --lib --no-default-features --features "pg$major" || return
    done
}

shell() {
    need shellcheck
    shellcheck --external-sources --source-path=SCRIPTDIR --source-path=. scripts/*.sh scripts/check/*.sh bench/*.sh bench/pgbench/*.sh binaries/*.sh t/clients/shell/*.sh stores/*/*.sh .ci/run
}

# The linter of the workflow is a Go program; without Go, only CI runs it.
workflow() {
    command -v go >/dev/null || return 0
    need actionlint && "$(scripts/cache-dir.sh)/tools/bin/actionlint"
}

sources() { CARGO_TARGET_DIR=$ROOT/build/target nice cargo test --quiet --locked --no-fail-fast --package pgcache-lint; }

pages() { scripts/lint-pages.py; }

prose() { scripts/lint-prose.py; }

# Tests the rules by which check.sh postgres compares the outputs of Postgres' own tests.
compare() { scripts/postgres-attached/test_compare.py; }

[ $# -gt 0 ] || set -- format clippy majors shell workflow sources pages prose compare
failed=0
for part in "$@"; do
    say "$part"
    "$part" || failed=1
done
[ $failed = 0 ] || die "lint found something: see above."
