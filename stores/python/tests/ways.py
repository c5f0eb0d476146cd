"""The caches that check.sh makes, and the ways to them."""

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
# The one that check.sh asks for; it runs them beside each other.
WAY = os.environ.get("WAY", "memory")
# The same, for text.
TEXT = f"{WAY}_text"
