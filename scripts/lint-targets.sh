#!/usr/bin/env bash
# Guards that every `make TARGET` that the workflow, the documentation or a script's header names is a target of the
# Makefile, and that `make help` tells of every target that the workflow runs.
set -euo pipefail
cd "$(dirname "$0")/.."

targets() { { make --print-data-base --question --no-builtin-rules : 2>/dev/null || true; } | sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' | sort -u; }

# In code spans, in blocks with a prompt, in the workflow's steps.
named() { grep -ohE "(\`|\\$ |run: |: +)make [a-z][a-z-]+" "$@" | sed 's/.*make //' | sort -u; }

failed=0
known=$(targets)
while read -r target; do
    grep -qx "$target" <<<"$known" || { echo "make $target is named somewhere and is no target" && failed=1; }
done < <(named .github/workflows/*.yml ./*.md docker/*.md bench/*.md examples/*.md scripts/*.sh)
while read -r target; do
    grep -q "@echo '.*make $target " Makefile || { echo "the workflow runs make $target, and make help does not tell of it" && failed=1; }
done < <(named .github/workflows/*.yml)
[ $failed = 0 ] && echo "every make target that is named is one"
exit $failed
