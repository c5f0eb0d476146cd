#!/usr/bin/env bash
# Guards that every test is run: what lies in sql/ and specs/ stands in the Makefile's REGRESS and
# ISOLATION lists, and has its expected output.
set -euo pipefail
cd "$(dirname "$0")/.."

listed() { sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' Makefile | sed -n "s/^$1\(_TIER\)\? *= *//p" | tr -s ' \t' '\n' | sed '/^$/d; /^\$/d' | sort; }

lying_in() { find "$1" -name "*.$2" ! -name 'pgcache--*' -printf '%f\n' 2>/dev/null | sed "s/\.$2\$//" | sort; }

failed=0
compare() {
    local list=$1 folder=$2 kind=$3 name
    while read -r name; do
        echo "$folder/$name.$kind is not in $list, or is listed and not there"
        failed=1
    done < <(comm -3 <(listed "$list") <(lying_in "$folder" "$kind") | tr -d '\t')
    while read -r name; do
        [ -e "expected/$name.out" ] || { echo "expected/$name.out is missing" && failed=1; }
    done < <(listed "$list")
}

compare REGRESS sql sql
compare ISOLATION specs spec
[ $failed = 0 ] && echo "every test is listed"
exit $failed
