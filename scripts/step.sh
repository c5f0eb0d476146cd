# shellcheck shell=bash
# Sourced after env.sh: runs one step with its log in $LOG, shows that it moves while it works, and on
# failure what went wrong.
#
#   step NAME COMMAND...     log: $LOG/NAME.log

show_failure() {
    local log=$1 diff
    diff=$(sed -n 's/^.*"\(.*regression\.diffs\)".*$/\1/p' "$log" | head -n 1)
    if [ -n "$diff" ] && [ -e "$diff" ]; then
        head -n 150 "$diff"
    else
        tail -n 60 "$log"
    fi
    if grep -qE 'Could not resolve host|failed to download from|spurious network error' "$log"; then
        echo "   cargo could not fetch what it needs: check the network, then run this again."
    fi
}

step() {
    local name=$1 log=$LOG/$1.log from=$SECONDS progress status=0
    shift
    say "$name"
    show_progress "$log" &
    progress=$!
    "$@" >"$log" 2>&1 9>&- || status=$?
    end_progress "$progress"
    if [ $status = 0 ]; then
        printf '   done in %d s\n' $((SECONDS - from))
    else
        show_failure "$log"
        printf '   FAILED after %d s (log: %s)\n' $((SECONDS - from)) "$log"
    fi
    return $status
}

build_and_stage() {
    step build nice make -s all PG_CONFIG="$PG_CONFIG" PGCACHE_PROFILE="$PGCACHE_PROFILE"
    step stage scripts/stage.sh
}

# Tells those we call that the staged server is up to date, and where it is.
export_staged() { export PGCACHE_BINDIR=$BINDIR PGCACHE_SERVER_USER=$SERVER_USER; }
