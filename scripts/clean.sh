#!/usr/bin/env bash
# Removes everything that this checkout has created: stops its own clusters by their pid files, then removes build/,
# target/, Python's temporary files and the run folder outside of the checkout. The cache of source builds stays
# (cache-dir.sh).
. "$(dirname "$0")/head.sh"
# The second lies outside of the checkout; its name is that of env.sh, which cannot be sourced when its Postgres is gone.
folders=(build)
far_run=/tmp/pgcache-$(printf '%s' "$PWD" | cksum | cut -d' ' -f1)
[ ! -O "$far_run" ] || [ -L "$far_run" ] || folders+=("$far_run")

# The first line of postmaster.pid is the server's pid; it must be a server from one of our stages.
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
