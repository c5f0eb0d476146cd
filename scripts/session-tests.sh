# shellcheck shell=bash
# Sourced after env.sh: runs the tests of t/ on the staged server, or on the server in PGCACHE_BINDIR. Passes its
# arguments to libtest; further options come from the environment (PGCACHE_PRELOAD and so on). scripts/sessions.py runs
# the program, prints a line for each test, and lists the slow ones.

session_tests() {
    local program
    mkdir -p "$RUN/t"
    [ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$RUN/t"
    program=$(session_program) || return
    (
        cd "$ROOT/t" || exit
        PGCACHE_BINDIR=${PGCACHE_BINDIR:-$BINDIR} PGCACHE_RUN=$RUN/t PGCACHE_SERVER_USER=$SERVER_USER \
            nice "$ROOT/scripts/sessions.py" "$RUN/t" "$program" "$@"
    )
}

# Builds the tests, and prints the path of their program.
session_program() {
    local built=$LOG/session-program.json
    CARGO_TARGET_DIR=$ROOT/build/target nice cargo test --locked --package pgcache-tests --test sessions --no-run \
        --message-format=json-render-diagnostics >"$built" || return
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$built" | tail -n 1
}
