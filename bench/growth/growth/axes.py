"""What grows, and through which values. Everything else stays: 8 clients, 37-byte values, a tier with room for all."""

from dataclasses import dataclass

SIZES = {
    "full": {"seconds": 4.0, "repeats": 3, "entries": 1_000_000},
    "quick": {"seconds": 1.0, "repeats": 1, "entries": 100_000},
    "smoke": {"seconds": 0.15, "repeats": 1, "entries": 2000, "axes": "clients,caches"},
}
FEWER = {"quick": ("redis", "pgcache_memory"), "smoke": ("redis", "pgcache_memory")}
LARGE = 8192  # bytes of a value: Redis stores a gigabyte a second, so runs are short
MEMORY_FOR_VALUES = 640 * 1024**2  # entries times value size, along the axis of values


@dataclass(frozen=True)
class Axis:
    name: str
    title: str
    unit: str
    full: tuple
    quick: tuple
    smoke: tuple
    systems: tuple
    asks: str  # what the chart shows

    def of_size(self, size):
        """The systems: a quick look leaves out those whose curves say the least."""
        chosen = FEWER.get(size)
        return [name for name in self.systems if not chosen or name in chosen or len(self.systems) < len(ALL_KINDS)]


ALL_KINDS = ("redis", "table_unlogged", "pgcache_hot", "pgcache_memory")
AXES = (
    Axis(
        "entries",
        "Entries",
        "entries",
        (10_000, 100_000, 1_000_000, 10_000_000, 30_000_000),
        (10_000, 100_000, 1_000_000),
        (1000, 2000),
        ALL_KINDS,
        "Does a larger cache answer slower?",
    ),
    Axis(
        "tier",
        "Size of the hot tier",
        "MiB",
        (16, 64, 256, 1024, 4096),
        (16, 256, 4096),
        (16, 32),
        ("pgcache_hot",),
        "What does a tier that is too small cost, and one that is larger than needed?",
    ),
    Axis(
        "value",
        "Size of a value",
        "bytes",
        (16, 128, 1024, 8192, 65536),
        (37, 1024, 65536),
        (37, 1024),
        ALL_KINDS,
        "How do requests fall as values grow?",
    ),
    Axis(
        "clients",
        "Clients",
        "clients",
        (1, 2, 4, 8, 16, 32, 64, 128),
        (1, 8, 64),
        (1, 2),
        ALL_KINDS,
        "Where does another client add nothing?",
    ),
    Axis(
        "caches",
        "Caches in the database",
        "caches",
        (1, 10, 100, 1000),
        (1, 100),
        (1, 3),
        ("pgcache_hot", "pgcache_memory"),
        "Does a session pay for the number of caches it uses? The same entries, spread over them, a random one asked each time.",
    ),
)


def by_names(names):
    known = {axis.name: axis for axis in AXES}
    return [known[name] for name in names]


def entries_for_value(size, entries):
    """Large values: as many entries as memory allows, in fours."""
    return min(entries, MEMORY_FOR_VALUES // size) // 4 * 4
