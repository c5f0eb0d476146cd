# shellcheck shell=bash
# Sourced after env.sh: runs the tests of t/ on the staged server, or on that of PGCACHE_BINDIR. Arguments
# go to cargo test; what the tests are told beyond that (PGCACHE_PRELOAD and so on) is in the caller's environment.

session_tests() {
    mkdir -p "$RUN/t"
    [ -z "$SERVER_USER" ] || chown "$SERVER_USER" "$RUN/t"
    PGCACHE_BINDIR=${PGCACHE_BINDIR:-$BINDIR} PGCACHE_RUN=$RUN/t PGCACHE_SERVER_USER=$SERVER_USER \
        CARGO_TARGET_DIR=$ROOT/build/target nice cargo test --locked --package pgcache-tests "$@"
}
