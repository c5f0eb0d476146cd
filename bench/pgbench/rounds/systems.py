"""The systems, side by side. A new one is one entry here: a name, a label, a colour, and how it is made."""

from dataclasses import dataclass

TABLE = 'CREATE {kind} TABLE bench (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz)'
CACHE = "CREATE EXTENSION IF NOT EXISTS pgcache; SELECT cache_create('bench', storage => '{storage}')"

INSERT_ROWS = "INSERT INTO bench (key, value) {rows}"
SET_ROWS = "SELECT count(cache_set(key, value, NULL, 'bench')) FROM ({rows}) AS entry"  # where INSERT cannot
HEAT_ROWS = INSERT_ROWS + "; SELECT count(cache_get(key, 'bench')) FROM bench"  # a copy of each in the hot tier

# Room for all entries and for what the write rounds add, as Redis takes it.
TIER = ("shared_preload_libraries = 'pgcache'", "pgcache.hot_size = '2GB'")


@dataclass(frozen=True)
class System:
    name: str
    label: str
    colour: str  # the same in every chart
    create: str = ""  # SQL; none for Redis
    scripts: str = ""  # read_<scripts>.sql and write_<scripts>.sql
    load: str = INSERT_ROWS
    settings: tuple = ()  # lines for postgresql.conf, beyond the stock ones
    floors: bool = False  # the floors of its driver are taken on this one

    @property
    def is_redis(self):
        return not self.create


SYSTEMS = (
    System("redis", "Redis", "#c8502d", floors=True),
    System("table_unlogged", "table, unlogged", "#9aa5b1", TABLE.format(kind="UNLOGGED"), "table", floors=True),
    System("table_logged", "table, logged", "#5f6b7a", TABLE.format(kind=""), "table"),
    System("pgcache_unlogged", "pgcache, unlogged", "#2f80c3", CACHE.format(storage="unlogged"), "cache"),
    System(
        "pgcache_hot",
        "pgcache, unlogged + hot tier",
        "#1f9d8b",
        CACHE.format(storage="unlogged"),
        "cache",
        load=HEAT_ROWS,
        settings=TIER,
    ),
    System(
        "pgcache_memory",
        "pgcache, memory",
        "#7b4fb3",
        CACHE.format(storage="memory"),
        "cache",
        load=SET_ROWS,
        settings=TIER,
    ),
    System("pgcache_logged", "pgcache, logged", "#174a7c", CACHE.format(storage="logged"), "cache"),
)

ROUNDS = ("read", "mixed", "write")


def by_names(names):
    known = {system.name: system for system in SYSTEMS}
    return [known[name] for name in names]
