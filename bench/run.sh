#!/usr/bin/env bash
# Every benchmark of this folder and one page of what it found. README.md in this folder explains it.
#
# Usage: run.sh [--quick] [--minutes N] [--only part,part] [--out DIR] [--list]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. bench/client.sh
PYTHONPATH=bench/pgbench:bench exec "$python" -m suite "$@"
