# shellcheck shell=bash
# Sourced by what counts tests.

# "PASSED FAILED" in a log of pg_regress, pg_isolation_regress, cargo test or sessions.py. A test's line of the first two is
# "test name ... ok 12 ms" up to Postgres 15 and "ok 1 - name 12 ms" from 16 on; of the others only the summary counts.
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
