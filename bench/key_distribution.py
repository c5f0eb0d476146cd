"""The distribution of keys. bench/driver/src/key_distribution.rs and the scripts of bench/pgbench contain the same
rules: change all of them or none.

Of the numbers 0 .. slots-1 every fifth is absent. So 80 of 100 uniform draws hit, and the misses are between the hits,
not beyond them. A number becomes a UUID by 24 fixed characters and its 12 digits.
"""

import random
import string

PREFIX = "6f1d7a52-3c08-4b9e-a5d4-"
HIT_RATE = 0.80
NEW_SHARE = 0.90  # of the writes
WRITE_SHARE = 0.20  # of the workload `mixed`

# pgbench cannot pad with zeros, so its numbers start at the first one with 12 digits. redis-benchmark pads but cannot
# add. The key has 36 bytes in both cases.
PGBENCH_OFFSET = 100_000_000_000

def slots(entries):
    return entries // 4 * 5


def value(size):
    """Returns letters and digits that do not compress, the same in every run."""
    letters = random.Random(37)
    return "".join(letters.choices(string.ascii_letters + string.digits, k=size))


def rows_sql(entries, text):
    """Returns the SQL of the entries to preload, in random order, as such keys would arrive."""
    return (
        f"SELECT '{PREFIX}' || ({PGBENCH_OFFSET} + n) AS key, '{text}' AS value "
        f"FROM generate_series(0, {slots(entries) - 1}::bigint) AS n WHERE n % 5 <> 0 ORDER BY hashint8(n)"
    )
