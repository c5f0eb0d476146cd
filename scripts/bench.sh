#!/usr/bin/env bash
# `make bench`: the full rounds; arguments go to bench/pgbench/run.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh rust server redis charts
. scripts/env.sh
. scripts/step.sh

build_and_stage
export_staged
exec bench/pgbench/run.sh "$@"
