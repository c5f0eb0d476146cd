#!/usr/bin/env bash
# Removes everything that this checkout has created. Stops its clusters by their pid files, then removes build/,
# target/, Python's temporary files and the run folder outside the checkout. Keeps the cache of source builds
# (cache-dir.sh).
. "$(dirname "$0")/head.sh"
# The second folder is outside the checkout. env.sh computes its name in the same way, but cannot be sourced here,
# because its Postgres may be gone.
folders=(build)
far_run=/tmp/pgcache-$(printf '%s' "$PWD" | cksum | cut -d' ' -f1)
[ ! -O "$far_run" ] || [ -L "$far_run" ] || folders+=("$far_run")

# The first line of postmaster.pid is the server's pid. Only a server from one of this checkout's stages is stopped.
{ find "${folders[@]}" -name postmaster.pid 2>/dev/null || true; } | while read -r pid_file; do
    pid=$(head -n 1 "$pid_file" 2>/dev/null) || continue
    program=$(readlink "/proc/$pid/exe" 2>/dev/null) || continue
    [[ $program == "$PWD"/build/* || $program == "$far_run"/* ]] || continue
    say "stopping the cluster in ${pid_file%/data/*}"
    kill -INT "$pid"
    timeout 30 tail --pid="$pid" -f /dev/null || die "the server with pid $pid did not stop within 30 s."
done
rm -rf target results output_iso log regression.diffs regression.out pgcache.so debian/{.debhelper,control,debhelper-build-stamp,files,postgresql-*} "${folders[@]}"
find bench demo docker scripts examples -type d -name __pycache__ -prune -exec rm -rf {} +
