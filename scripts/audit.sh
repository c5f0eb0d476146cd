#!/usr/bin/env bash
# `make audit`: checks all dependencies against deny.toml: licences, sources and bans, and advisories if their database
# can be fetched.
. "$(dirname "$0")/head.sh"
need audit
PATH=$PATH:$(scripts/cache-dir.sh)/tools/bin
cargo deny --locked check licenses bans sources
if ! cargo deny --locked fetch db >/dev/null 2>&1; then
    say "the advisory database is out of reach here: advisories were not checked"
    exit 0
fi
cargo deny --locked check advisories
