#!/usr/bin/env bash
# `make trust`: runs the long checks of `make cassert` and `make valgrind`, and the tests on Postgres 16 and 17, part by
# part. Each finished part adds a line to build/trust/results: part, passed, failed, seconds, commit. A run may be
# stopped at any time, because a new run skips the parts that have a line for the same commit. The output ends with the
# table of all lines; a part without a line has not run, or cannot run here.
#
# Usage: trust.sh [PART...]      all parts, if none is named; trust.sh table prints the table and runs nothing
#
# Environment: LIMIT=7200 is the longest time of a part in seconds; a longer part counts as not run.
. "$(dirname "$0")/head.sh"

folder=build/trust
file=$folder/results
mkdir -p "$folder"
touch "$file"
commit=$(git rev-parse --short=10 HEAD)
[ -z "$(git status --porcelain)" ] || commit+=+changes

# The session tests for which the contents of freed memory matter most.
declare -A modules=(
    [fetch]='fetch:: fetch_commit:: fetch_locks:: fetch_truth:: fetch_windows::'
    [leases]='leases::'
    [depend]='depend:: depend_settings:: depend_triggers::'
    [prepared]='prepared:: prepared_restart::'
    [hidden]='hidden:: hidden_cursors::'
    [attach]='attached:: attached_hidden:: attached_life:: attached_refused::'
    [protocol]='resp_'
)
names=(regress fetch leases depend prepared hidden attach protocol)
parts=("${names[@]/#/cassert-}" "${names[@]/#/valgrind-}" postgres-16 postgres-17)

# PART: runs the part.
run() {
    local name=${1#*-}
    case $1 in
        postgres-*)
            PG_CONFIG='' PG=$name PARTS='regress sessions' SESSIONS="${modules[fetch]} ${modules[leases]} ${modules[hidden]}" scripts/test.sh
            ;;
        *-regress) PARTS=regress SESSIONS='' "scripts/${1%%-*}.sh" ;;
        *) PARTS=sessions SESSIONS=${modules[$name]} "scripts/${1%%-*}.sh" ;;
    esac
}
export -f run

is_done() { awk -v part="$1" -v commit="$commit" '$1 == part && $5 == commit { found = 1 } END { exit !found }' "$file"; }

# PART: runs the part, and writes its line if its log ends with a count.
record() {
    local from=$SECONDS log=$folder/$1.log passed failed
    say "$1"
    # Starts the part in its own process group, so that at the limit all processes of the part end, too.
    timeout "${LIMIT:-7200}" bash -c "$(declare -p modules); run $1" >"$log" 2>&1 </dev/null || true
    if read -r passed failed < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1); then
        echo "$1 $passed $failed $((SECONDS - from)) $commit" >>"$file"
    fi
    tail -n 3 "$log"
}

# Prints the last line of each part.
table() {
    local part
    {
        echo 'part passed failed seconds commit'
        for part in "${parts[@]}"; do
            awk -v part="$part" '$1 == part { line = $0 } END { print line ? line : part " not-run - - -" }' "$file"
        done
    } | column -t
}

[ "${1:-}" != table ] || { table; exit; }
[ $# = 0 ] || for part in "$@"; do
    [[ " ${parts[*]} " == *" $part "* ]] || die "there is no part $part: ${parts[*]}"
done
wanted=("$@")
[ $# -gt 0 ] || wanted=("${parts[@]}")
for part in "${wanted[@]}"; do
    is_done "$part" || record "$part"
done
table
