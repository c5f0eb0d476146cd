#!/usr/bin/env bash
# Runs a command with rustup's nightly toolchain first on the PATH. `cargo +nightly` does not suffice, because the cargo
# that builds pgcache may not come from rustup.
#
# Usage: nightly.sh COMMAND...
set -euo pipefail
chain=$(RUSTUP_AUTO_INSTALL=0 rustup run nightly rustc --print sysroot)
export RUSTUP_TOOLCHAIN=nightly
PATH=$chain/bin:$PATH exec "$@"
