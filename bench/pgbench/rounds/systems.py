"""The systems, side by side. A new one is one entry here: a name, a label, a colour, and how it is made."""

from dataclasses import dataclass

TABLE = 'CREATE {kind} TABLE bench (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz)'
CACHE = "CREATE EXTENSION IF NOT EXISTS pgcache; SELECT cache_create('bench', storage => '{storage}')"

INSERT_ROWS = "INSERT INTO bench (key, value) {rows}"
SET_ROWS = "SELECT count(cache_set(key, value, NULL, 'bench')) FROM ({rows}) AS entry"  # where INSERT cannot
HEAT_ROWS = INSERT_ROWS + "; SELECT count(cache_get(key, 'bench')) FROM bench"  # a copy of each in the hot tier


@dataclass(frozen=True)
class System:
    name: str
    label: str
    colour: str  # the same in every chart
    create: str = ""  # SQL; none for Redis and its kind
    scripts: str = ""  # read_<scripts>.sql and write_<scripts>.sql
    load: str = INSERT_ROWS
    tier: bool = False  # with the library preloaded and room for all entries
    program: str = ""  # the server, when it is not Postgres
    options: tuple = ()  # of that program, beyond its defaults
    suite: str = ""  # of Debian, when the program is not the machine's own
    floors: bool = False  # the floors of its driver are taken on this one

    @property
    def is_redis(self):
        return self.program in ("redis-server", "valkey-server")

    @property
    def is_postgres(self):
        return not self.program


SYSTEMS = (
    System("redis", "Redis", "#c8502d", floors=True, program="redis-server"),
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
        tier=True,
    ),
    System(
        "pgcache_memory",
        "pgcache, memory",
        "#7b4fb3",
        CACHE.format(storage="memory"),
        "cache",
        load=SET_ROWS,
        tier=True,
    ),
    System("pgcache_logged", "pgcache, logged", "#174a7c", CACHE.format(storage="logged"), "cache"),
)

# What their documentation offers beyond the defaults. I/O threads are meant for four cores and more: on two
# they spin on the core that the client needs.
NO_SAVE = ("--save", "")
IO_THREADS = (*NO_SAVE, "--io-threads", "2")
NEWER = "forky"


def redis(name, label, colour, options=(), suite=NEWER, program="redis-server"):
    return System(name, label, colour, program=program, options=options, suite=suite)


def valkey(name, label, colour, options=()):
    return redis(name, label, colour, options, program="valkey-server")


# Not part of the usual run: asked for by name.
RIVALS = (
    redis("redis_no_save", "Redis, no snapshots", "#d9764f", NO_SAVE, suite=""),
    redis("redis_io_threads", "Redis, no snapshots, 2 I/O threads", "#e08a68", IO_THREADS, suite=""),
    redis("redis_new", "newer Redis", "#a83a1a"),
    redis("redis_new_no_save", "newer Redis, no snapshots", "#b95231", NO_SAVE),
    redis("redis_new_io_threads", "newer Redis, no snapshots, 2 I/O threads", "#c96848", IO_THREADS),
    valkey("valkey_new", "Valkey", "#8a4fa8"),
    valkey("valkey_new_no_save", "Valkey, no snapshots", "#9f6cb8", NO_SAVE),
    valkey("valkey_new_io_threads", "Valkey, no snapshots, 2 I/O threads", "#b48ac8", IO_THREADS),
    System("memcached", "memcached", "#5b8a3c", program="memcached", options=("-m", "8192")),
    System("memcached_new", "newer memcached", "#8ab56c", program="memcached", options=("-m", "8192"), suite=NEWER),
)
ALL = SYSTEMS + RIVALS

ROUNDS = ("read", "mixed", "write")


def by_names(names):
    known = {system.name: system for system in ALL}
    return [known[name] for name in names]
