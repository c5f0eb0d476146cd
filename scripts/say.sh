# shellcheck shell=bash
# Sourced by every script: functions for messages. A step announces itself in one line. An error that stops a script is
# one sentence that says how to proceed.

say() { printf '== %s\n' "$*"; }

die() {
    printf 'pgcache: %s\n' "$*" >&2
    exit 1
}

# Checks the free space before a step, so that the step does not fail halfway: need_room FOLDER MB 'who needs it' ['what
# else helps']
need_room() {
    local free
    free=$(df --output=avail -m "$1" | tail -n 1 | tr -d ' ')
    [ "$free" -ge "$2" ] || die "$3 needs $2 MB in $1 and $free MB are free: free some${4:+, or $4}."
}

# Shows the last line of a log every 15 s. Run it in the background.
show_progress() {
    local log=$1 from=$SECONDS
    while sleep 15 >/dev/null 2>&1; do
        printf '   %3d s  %.100s\n' $((SECONDS - from)) "$(tail -n 1 "$log" 2>/dev/null | tr -d '\r')"
    done
}

end_progress() {
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
