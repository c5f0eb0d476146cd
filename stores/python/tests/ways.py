"""The caches that check.sh creates, and the connections to them."""

import os

DIRECT = "user=postgres"
POOLED = f"user=postgres host={os.environ['POOLED_HOST']} port={os.environ['POOLED_PORT']}"

# name: cache, conninfo, prepare_threshold
WAYS = {
    "unlogged": ("unlogged", DIRECT, 5),
    "memory": ("memory", DIRECT, 5),
    "pooled": ("pooled", POOLED, None),
    "pooled_memory": ("pooled_memory", POOLED, None),
}
# The way that check.sh has chosen; check.sh runs all ways in parallel.
WAY = os.environ.get("WAY", "memory")
# The same way with a cache of text.
TEXT = f"{WAY}_text"
