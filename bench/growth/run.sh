#!/usr/bin/env bash
# How cost grows: with entries, the size of the hot tier, value size, clients, number of caches. README.md explains it.
#
# Usage: run.sh [--quick | --smoke] [--axes entries,tier,value,clients,caches] [--seconds S] [--repeats N]
#               [--most-entries N] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
. bench/client.sh

PYTHONPATH=$root/bench/pgbench:$here exec "$python" -m growth "$@"
