# shellcheck shell=bash
# Sourced after env.sh: runs a step, writes its log to $LOG, shows progress while the step runs, and shows the error if
# the step fails.
#
#   step NAME COMMAND...     log: $LOG/NAME.log
#   results LOG              counts the tests in it

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

# Prints "PASSED FAILED" for a log of pg_regress, pg_isolation_regress, cargo test or sessions.py. In the logs of the
# first two, a test's line is "test name ... ok 12 ms" up to Postgres 15 and "ok 1 - name 12 ms" from 16 on. Of the
# other logs only the summary counts.
results() {
    awk '
        /^(test|    ) .* \.\.\. ok +[0-9]+ ms/ || /^ok [0-9]+ .* ms$/      { passed++ }
        /^(test|    ) .* \.\.\. FAILED.* ms/ || /^not ok [0-9]+ .* ms$/   { failed++ }
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
            }
        }
        END { print passed + 0, failed + 0 }' "$1"
}

build_and_stage() {
    step build nice make -s all PG_CONFIG="$PG_CONFIG" PGCACHE_PROFILE="$PGCACHE_PROFILE"
    step stage scripts/stage.sh
}

# Makes the called scripts and programs use the staged server.
export_staged() { export PGCACHE_BINDIR=$BINDIR PGCACHE_SERVER_USER=$SERVER_USER; }
