#!/usr/bin/env bash
# Counts results in a log of pg_regress, pg_isolation_regress or cargo test: prints "PASSED FAILED".
# A test's line is "test name ... ok 12 ms" up to Postgres 15 and "ok 1 - name 12 ms" from 16 on; of
# cargo test only the summary lines count.
#
# Usage: count-tests.sh LOG
set -euo pipefail

awk '
    /^(test|    ) .* \.\.\. ok +[0-9]+ ms/    { passed++ }
    /^(test|    ) .* \.\.\. FAILED.* ms/      { failed++ }
    /^ok [0-9]+ .* ms$/                       { passed++ }
    /^not ok [0-9]+ .* ms$/                   { failed++ }
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) passed += $(i - 1)
            if ($i ~ /^failed/) failed += $(i - 1)
        }
    }
    END { print passed + 0, failed + 0 }
' "$1"
