#!/usr/bin/env bash
# Fuzzes a crate for a number of seconds (default 60), with cargo-fuzz if it is installed. Otherwise plain cargo builds
# the same target with cargo-fuzz's coverage flags.
#
# Usage: fuzz.sh store|resp [SECONDS]
. "$(dirname "$0")/head.sh"

nightly=$PWD/scripts/nightly.sh
case ${1:-} in
    store) target=ops ;;
    resp) target=requests ;;
    *) die "usage: fuzz.sh store|resp [SECONDS]" ;;
esac
limits=(-max_total_time="${2:-60}" -max_len=16384 -rss_limit_mb=4096)
cd "crates/$1/fuzz"
! "$nightly" cargo fuzz --version >/dev/null 2>&1 || exec "$nightly" cargo fuzz run "$target" -- "${limits[@]}"
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1"
host=$("$nightly" rustc -vV | sed -n 's/^host: //p')
"$nightly" cargo build --release --target "$host" --bin "$target"
mkdir -p "corpus/$target" artifacts
exec "target/$host/release/$target" "${limits[@]}" -artifact_prefix=artifacts/ "corpus/$target"
