# shellcheck shell=bash
# Sourced first by every script: sets strict mode, changes to the root of the checkout, and defines say, die and
#
#   need WHAT...    installs it (need.sh); `need server` also sets all paths (env.sh), and provides
#                   step (step.sh) and session_tests (session-tests.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/say.sh

need() {
    scripts/need.sh "$@"
    [[ " $* " == *" server "* ]] || return 0
    . scripts/env.sh
    . scripts/step.sh
    . scripts/session-tests.sh
}
