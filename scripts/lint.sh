#!/usr/bin/env bash
# `make lint`: formatting, clippy, the shell scripts, and the lint-* scripts that make test runs, too.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh rust server python lint
. scripts/env.sh

failed=0
check() {
    say "$*"
    "$@" || failed=1
}

clippy() {
    CARGO_TARGET_DIR=$BUILD/target PGRX_PG_CONFIG_PATH=$PG_CONFIG nice cargo clippy --quiet --locked --workspace \
        --all-targets --no-default-features --features "pg$PG_MAJOR" -- -D warnings
}

check cargo fmt --all --check
check clippy
check shellcheck --external-sources --source-path=SCRIPTDIR --source-path=. scripts/*.sh bench/*.sh .ci/run
# The workflow's own linter is a Go program; where there is no Go, CI looks.
if command -v go >/dev/null; then
    scripts/need.sh actionlint
    check "$(scripts/cache-dir.sh)/tools/bin/actionlint"
fi
for lint in scripts/lint-*; do
    check "$lint"
done

[ $failed = 0 ] || die "lint found something: see above."
