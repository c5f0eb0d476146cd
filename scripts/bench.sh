#!/usr/bin/env bash
# `make bench`: every benchmark and its page; arguments go to bench/run.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh rust server redis charts
. scripts/env.sh
. scripts/step.sh
need_files 4096 'make bench'

build_and_stage
export_staged
exec bench/run.sh "$@"
