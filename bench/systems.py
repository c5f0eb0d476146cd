"""The systems that the benchmarks compare. A new system is one entry here: a name, a label, a colour, and how to create
it."""

from dataclasses import dataclass, replace

WORKLOADS = ("read", "mixed", "write")


@dataclass(frozen=True)
class System:
    name: str
    label: str
    colour: str  # the same in every chart
    table: str = ""  # created by bench/pgbench/setup.sql; empty for Redis and similar servers
    read: str = ""  # scripts of bench/pgbench
    write: str = ""
    mixed: str = ""
    redis_protocol: bool = False  # measured through the Redis protocol, not SQL
    tier: bool = False  # with the library preloaded and room for all entries
    program: str = ""  # the server, if it is not Postgres
    options: tuple = ()  # options of that program beyond its defaults; {mb} is a limit in MiB
    suite: str = ""  # the Debian suite of the program, if it is not the installed one
    baseline: bool = False  # the baselines of the tools are measured on this system

    @property
    def is_redis(self):
        return self.program in ("redis-server", "valkey-server")

    @property
    def is_postgres(self):
        return not self.program

    def limited(self, mb):
        return replace(self, options=tuple(option.format(mb=mb) for option in self.options))


HOT = System("pgcache_hot", "pgcache, unlogged + hot tier", "#1f9d8b", "unlogged", "get_hot", "set_unlogged", "mixed_hot", tier=True)
MEMORY = System("pgcache_memory", "pgcache, memory", "#7b4fb3", "memory", "get_memory", "set_memory", "mixed_memory", tier=True)
RESP_MEMORY = System("resp_memory", "pgcache, memory, by the Redis protocol", "#4b2d8f", "memory", redis_protocol=True, tier=True)
RESP_UNLOGGED = System("resp_unlogged", "pgcache, unlogged, by the Redis protocol", "#0f6b5f", "unlogged", redis_protocol=True, tier=True)
SYSTEMS = (
    System("redis", "Redis", "#c8502d", program="redis-server", baseline=True),
    System("table_unlogged", "table, unlogged", "#9aa5b1", "plain", "select_by_key", "upsert", "mixed_table", baseline=True),
    System("table_logged", "table, logged", "#5f6b7a", "plain_logged", "select_by_key_logged", "upsert_logged", "mixed_table_logged"),
    System("pgcache_unlogged", "pgcache, unlogged", "#2f80c3", "unlogged", "get_table", "set_unlogged", "mixed_cache"),
    HOT,
    MEMORY,
    RESP_MEMORY,
    RESP_UNLOGGED,
    System("pgcache_logged", "pgcache, logged", "#174a7c", "logged", "get_logged", "set_logged", "mixed_logged"),
)

# Options that the documentation of each system recommends. I/O threads are meant for four cores and more: with two
# cores they spin on the core that the client needs.
NO_SAVE = ("--save", "")
IO_THREADS = (*NO_SAVE, "--io-threads", "2")
ROOMY = ("-m", "8192")
NEWER = "forky"


def other(name, label, colour, options=(), suite=NEWER, program="redis-server"):
    return System(name, label, colour, program=program, options=options, suite=suite)


# Systems that are not part of the usual run and must be requested by name.
COMPETITORS = (
    other("redis_no_save", "Redis, no snapshots", "#d9764f", NO_SAVE, ""),
    other("redis_io_threads", "Redis, no snapshots, 2 I/O threads", "#e08a68", IO_THREADS, ""),
    other("redis_new", "newer Redis", "#a83a1a"),
    other("redis_new_no_save", "newer Redis, no snapshots", "#b95231", NO_SAVE),
    other("redis_new_io_threads", "newer Redis, no snapshots, 2 I/O threads", "#c96848", IO_THREADS),
    other("valkey_new", "Valkey", "#8a4fa8", program="valkey-server"),
    other("valkey_new_no_save", "Valkey, no snapshots", "#9f6cb8", NO_SAVE, program="valkey-server"),
    other("valkey_new_io_threads", "Valkey, no snapshots, 2 I/O threads", "#b48ac8", IO_THREADS, program="valkey-server"),
    other("memcached", "memcached", "#5b8a3c", ROOMY, "", "memcached"),
    other("memcached_new", "newer memcached", "#8ab56c", ROOMY, program="memcached"),
)
ALL = SYSTEMS + COMPETITORS
OF_EACH_KIND = "redis,table_unlogged,pgcache_hot,pgcache_memory"
LABELS = {system.name: system.label for system in ALL}
COLOURS = {system.name: system.colour for system in ALL}
