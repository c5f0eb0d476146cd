#!/usr/bin/env bash
# Prints the mirror of the machine's own suite, in whichever format its package sources are configured. With -security,
# prints the mirror of the suite's security archive, or nothing.
. "$(dirname "$0")/head.sh"
. /etc/os-release

# shellcheck disable=SC2016 # apt expands these, not the shell
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' |
    awk -v suite="${VERSION_CODENAME:-}${1:-}" '$2 == suite && $3 == "main" { print $1; exit }')
[ -n "$mirror$*" ] || die "this machine has no package source for its own suite (${VERSION_CODENAME:-unknown}), so no mirror is known."
echo "$mirror"
