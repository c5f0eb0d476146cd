#!/usr/bin/env bash
# Hit rate under a memory limit: pgcache beside Redis and memcached. README.md in this folder explains it.
#
# Usage: run.sh [--quick | --smoke] [--cases 2GiB,100MiB] [--systems a,b] [--scale N] [--repeats N] [--out DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
. bench/client.sh

scripts/need.sh memcached
export PYTHONPATH=$root/bench/pgbench:$here
case " $* " in
*" --smoke "*)
    "$python" -m unittest discover -q -s "$here/tests"
    "$here/sizes.sh" --smoke
    ;;
esac
exec "$python" -m limit "$@"
