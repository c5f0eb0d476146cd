#!/usr/bin/env bash
# `make bench`: runs every benchmark and builds its page. Arguments are passed to bench/run.sh.
. "$(dirname "$0")/head.sh"
need rust server redis charts
need_files 4096 'make bench'

build_and_stage
export_staged
exec bench/run.sh "$@"
