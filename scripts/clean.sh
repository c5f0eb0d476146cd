#!/usr/bin/env bash
# Leaves nothing of this checkout behind: stops its own clusters by their pid files, then removes build/,
# target/, Python's leavings and the run folder outside the checkout. The cache of source builds stays (cache-dir.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/say.sh

# The same name as in env.sh, which cannot be sourced when its Postgres is gone.
far_run=/tmp/pgcache-$(printf '%s' "$PWD" | cksum | cut -d' ' -f1)
if [ ! -O "$far_run" ] || [ -L "$far_run" ]; then
    far_run=
fi

folders=(build)
[ -z "$far_run" ] || folders+=("$far_run")

# The first line of postmaster.pid is the server's pid; it must be a server from one of our stages.
stop_servers() {
    local pid_file pid
    find "${folders[@]}" -name postmaster.pid 2>/dev/null | while read -r pid_file; do
        pid=$(head -n 1 "$pid_file" 2>/dev/null) || continue
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in
            "$PWD"/build/* | "${far_run:-none}"/*)
                say "stopping the cluster in ${pid_file%/data/*}"
                kill -INT "$pid"
                timeout 30 tail --pid="$pid" -f /dev/null || die "the server with pid $pid did not stop within 30 s."
                ;;
        esac
    done
}

stop_servers
rm -rf target results output_iso log regression.diffs regression.out pgcache.so "${folders[@]}"
find bench demo docker scripts examples -type d -name __pycache__ -prune -exec rm -rf {} +
