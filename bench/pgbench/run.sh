#!/usr/bin/env bash
# The rounds: Redis, plain tables and pgcache side by side. README.md in this folder explains them.
#
# Usage: run.sh [--quick | --smoke] [--entries N] [--clients N] [--seconds S] [--repeats N]
#               [--value-size BYTES] [--keys uniform|zipf] [--tcp] [--systems a,b] [--tools a,b]
#               [--threads 1,2] [--tier MB] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

. bench/client.sh

case " $* " in *" --smoke "*) PYTHONPATH=$here "$python" -m unittest discover -q -s "$here/tests" ;; esac
PYTHONPATH=$here exec "$python" -m rounds "$@"
