"""Measures table caches through the Redis protocol, compared with a memory cache, prepared SQL on plain tables of the
same shape, and Redis.

One Postgres has all caches and plain tables. One side is measured at a time, by redis-benchmark or pgbench with the
same number of clients. Server and client have a core each ("pinned"), or share all of them ("free").
"""

import contextlib
import tempfile
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from . import cores, key_distribution as kd, processes, scripts
from .base import Journal, ground, insist, named, output, say
from .servers import PATIENCE, Door, Redis, Setup
from .stats import summarise
from .systems import ALL, LABELS
from .tables import markdown
from .tier import FIRST as FIRST_KEY
from .tools import Pgbench, RedisBenchmark

SIZES = {
    "full": {"seconds": 3.0, "repeats": 5, "entries": 200_000, "growth": "1,10,50,100,1000", "ways": "pinned"},
    "quick": {"seconds": 1.0, "repeats": 3, "entries": 100_000, "growth": "1,50,1000", "ways": "pinned"},
    "smoke": {"seconds": 0.05, "repeats": 1, "entries": 2_000, "growth": "1,20", "ways": "pinned"},
}
CLIENTS = 50
FIRST = 2_000  # requests that measure the pace
REDIS = named(ALL, "redis_no_save")[0]
SIDES = {"redis": REDIS.label, "memory": "pgcache, memory", "table": "pgcache, table", "sql": "plain table, SQL"}
WAYS = {"pinned": "Server on one core, client on another", "free": "Server and client share all cores"}
KEY = ("way", "load", "clients", "side", "repetition")
FIELDS = ("tps", "cpu_us", "front_us", "back_us", "p50_ms", "p99_ms", "batch", "wal_bytes", "ids")

# All tables are in shared_buffers, and no checkpoint or VACUUM runs during the measurement, so that only the work of
# commands counts.
STEADY = ("shared_buffers = 512MB", "checkpoint_timeout = 1d", "max_wal_size = 16GB", "autovacuum = off", "pgcache.expire_interval = 0")
KINDS = {"read": "unlogged", "unlogged": "unlogged", "logged": ""}  # by name of the cache and its plain table
PLAIN = 'CREATE {kind} TABLE {name} (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz) WITH (fillfactor = 85)'


@dataclass(frozen=True)
class Load:
    name: str
    title: str
    command: str
    table: str
    sides: tuple  # the goal of the table cache refers to the first side
    pipeline: int = 1
    tier: bool = True  # whether reads may use copies in the hot tier
    must: float = 0.0  # the least ratio to the first side
    aim: float = 0.0  # the wanted ratio to Redis

    @property
    def writes(self):
        return self.command == "SET"

    @property
    def plain(self):
        return f"plain_{self.table}"

    def words(self, value):
        return [self.command, "key:__rand_int__", *([value] if self.writes else [])]

    def script(self):
        sql = scripts.statement("upsert" if self.writes else "select_by_key", ":n", ":value", self.plain)
        return f"\\set n {FIRST_KEY} + random(0, :entries - 1)\n{sql};\n"


GROW = Load("grow", "SET, unlogged, one at a time", "SET", "unlogged", ("table",))
LOADS = (
    Load("hot", "GET of a hot entry", "GET", "read", ("memory", "table"), must=0.9),
    Load("hot16", "the same, pipelines of 16", "GET", "read", ("memory", "table"), pipeline=16, must=0.9),
    Load("past", "GET past the tier", "GET", "read", ("sql", "table"), tier=False, must=1.5),
    Load("unlogged", "SET, unlogged", "SET", "unlogged", ("sql", "table", "redis"), must=3.0, aim=0.7),
    Load("logged", "SET, logged", "SET", "logged", ("sql", "table"), must=5.0),
    GROW,
)


class Tables(Door):
    """A server with a memory cache and table caches for the Redis protocol, and plain tables for SQL."""

    CACHES = (
        ("public.memory", "storage => 'memory'"),
        *((f"public.{name}", f"storage => '{kind or 'logged'}'") for name, kind in KINDS.items()),
    )
    NUMBERS = {name.partition(".")[2]: number for number, (name, _) in enumerate(CACHES)}

    def __init__(self, setup):
        super().__init__(setup)
        self.has_tier = True

    def load(self):
        entries, value = self.setup.entries, kd.value(self.setup.value_size)
        numbers = f"generate_series(0, {entries - 1}) AS n ORDER BY hashint8(n)"
        rows = f"SELECT 'key:' || lpad(n::text, 12, '0') AS key, '{value}' AS value FROM {numbers}"
        self.sql(f"SELECT count(cache_set(key, value, NULL, 'memory')) FROM ({rows}) AS entry")
        for name, kind in KINDS.items():
            self.sql(f"INSERT INTO {name} (key, value) {rows}", PLAIN.format(kind=kind, name=f"plain_{name}"))
            self.sql(f"INSERT INTO plain_{name} (key, value) SELECT {FIRST_KEY} + n, '{value}' FROM {numbers}")
            self.sql(f"VACUUM (ANALYZE) {name}, plain_{name}")
        self.sql("SELECT count(cache_get(key, 'read')) FROM read", "CHECKPOINT")

    def check(self):
        """Checks that the loaded entries exist and are returned, because redis-benchmark does not check replies."""
        entries, value = self.setup.entries, kd.value(self.setup.value_size)
        for name in KINDS:
            counted = self.sql(f"SELECT count(*) FROM {name}", f"SELECT count(*) FROM plain_{name} WHERE value = '{value}'")
            insist(counted.split() == [str(entries)] * 2, f"{name} has not the {entries} entries that it should")
        for name, number in self.NUMBERS.items():
            insist(self.cli("-n", number, "GET", f"key:{1:012}") == value, f"{name} does not answer what was stored")

    def counters(self):
        sets = self.number("SELECT sum(sets) FROM pgcache.stats")
        return {**super().counters(), "sets": sets}

    def use_tier(self, on):
        """Sets whether reads of tables use copies. Waits until all processes use the setting, because they reload it
        one after the other."""
        if on == self.has_tier:
            return
        self.sql(f"ALTER SYSTEM SET pgcache.hot_tier = {'on' if on else 'off'}", "SELECT pg_reload_conf()")
        end = time.monotonic() + PATIENCE
        while not self.reads_by("hot_hits" if on else "table_hits"):
            insist(time.monotonic() < end, "pgcache.hot_tier was set and nobody obeys")
        self.has_tier = on

    def reads_by(self, counter):
        before = self.counters()[counter]
        self.cli("-n", self.NUMBERS["read"], "GET", f"key:{1:012}")
        return self.counters()[counter] > before


def add_options(parser):
    parser.add_argument("--loads", help=", ".join(load.name for load in LOADS))
    parser.add_argument("--entries", type=int, help="values of 37 bytes in each cache and table")
    parser.add_argument("--growth", help="numbers of clients, for SET on an unlogged cache")
    parser.add_argument("--ways", help=", ".join(WAYS))


def run(options):
    loads = named(LOADS, options.loads)
    growth = [int(number) for number in options.growth.split(",")]
    journal = Journal(options.out, KEY)
    wanted = plan(loads, growth, ways(options.ways), options.repeats)
    todo = [one for one in wanted if not journal.has(one[0], one[1].name, *one[2:])]
    if todo:
        tier_mb = max(64, options.entries // 500)
        setup = Setup(options.out, options.entries, clients=max(CLIENTS, *growth), tier_mb=tier_mb, conf=STEADY)
        with Tables(setup) as postgres, Redis(setup, REDIS) as redis:
            postgres.load()
            postgres.check()
            journal.facts["versions"] = [postgres.version(), f"{REDIS.label}: {redis.version()}"]
            journal.write_facts()
            for way, runs in groupby(todo, key=lambda one: one[0]):
                with placed(way, [postgres.pid, redis.pid]):
                    for _, load, clients, side, repetition in runs:
                        row = measure(postgres, redis, load, side, clients, options.seconds)
                        journal.add({"way": way, "repetition": repetition, **row})
                        say(f"{way:<7}{load.name:<9}{clients:>5} {side:<7}{row['tps']:>11,.0f}/s {row['cpu_us']:>7.2f} µs")
            postgres.check()
    if options.size == "smoke":
        insist(len(journal.rows) == len(wanted), f"{len(journal.rows)} runs of {len(wanted)}")
        insist(all(row["tps"] > 0 for row in journal.rows), "a server was asked and answered nothing")
    summary = summarise(journal.rows, KEY[:-1], FIELDS)
    journal.report(summary, render(summary, journal.facts, options))


def ways(names):
    """Returns the ways to run. A server and its client can only be pinned if there are two cores."""
    unknown = set(names.split(",")) - set(WAYS)
    insist(not unknown, f"nothing is called {', '.join(unknown)}; there are {', '.join(WAYS)}")
    return names.split(",") if cores.are_two() else ["free"]


def plan(loads, growth, chosen_ways, repeats):
    """Returns the runs in their order: way, load, clients, side, repetition."""
    return [
        (way, load, clients, side, repetition)
        for way in chosen_ways
        for repetition in range(repeats)
        for load in loads
        for clients in (growth if load is GROW else [CLIENTS])
        for side in load.sides
    ]


def placed(way, servers):
    return cores.one_core_for(servers) if way == "pinned" else contextlib.nullcontext()


def measure(postgres, redis, load, side, clients, seconds):
    postgres.use_tier(load.tier)
    if load.writes:
        postgres.sql(f"VACUUM {load.table}, {load.plain}")
    server, ask = (redis if side == "redis" else postgres), (by_pgbench if side == "sql" else by_redis_benchmark)
    timed = ask(server, load, side, clients, seconds)
    counted, used = postgres.counters(), spent(server)
    seen = timed()
    used = {name: now - used[name] for name, now in spent(server).items()}
    grown = {name: now - counted[name] for name, now in postgres.counters().items()}
    used["cpu"] -= seen.pop("connecting", 0.0)
    judge(load, side, seen["requests"], grown)
    return {"load": load.name, "clients": clients, "side": side, **seen, **each(load, side, seen["requests"], used, grown)}


def spent(server):
    """Returns the CPU seconds of all processes of the server, and of those of the Redis protocol."""
    ours = {name: processes.cpu_seconds_of(server.pid, f"pgcache resp {name}") for name in ("front", "back")}
    return {"cpu": processes.cpu_seconds(server.pid), **ours}


def each(load, side, requests, used, grown):
    """Returns the cost of a request in microseconds, and of a write in bytes of WAL and in transactions; `ids` is for a
    million writes."""
    parts = ("cpu", "front", "back") if side in ("memory", "table") else ("cpu",)
    row = {f"{name}_us": used[name] / requests * 1e6 for name in parts}
    if load.writes and side != "redis":
        xids = grown["xids"]
        row |= {"batch": requests / xids if xids else None, "ids": xids / requests * 1e6, "wal_bytes": grown["wal_bytes"] / requests}
    return row


def judge(load, side, requests, grown):
    """Rejects a run that did different work from what its name says."""
    hot, table = grown["hot_hits"], grown["table_hits"]
    if side == "table" and load.writes:
        insist(grown["sets"] >= requests, f"{load.title}: {grown['sets']} entries were stored by {requests} requests")
    elif side == "table" and load.tier:
        insist(hot >= requests and not table, f"{load.title}: {table} of {requests} reads were not answered by the tier")
    elif side == "table":
        insist(table >= requests and not hot, f"{load.title}: {hot} of {requests} reads were answered by the tier")


def by_redis_benchmark(server, load, side, clients, seconds):
    number = server.NUMBERS["memory" if side == "memory" else load.table] if side != "redis" else 0

    def ask(requests):
        head = ["redis-benchmark", *server.tool_connection, "--dbnum", number, "-c", clients, "-P", load.pipeline, "-n", requests, "--csv"]
        words = [*head, "-r", server.setup.entries, *load.words(kd.value(server.setup.value_size))]
        return RedisBenchmark.parse(output(words))

    requests = RedisBenchmark.requests(ask, max(FIRST, clients * load.pipeline), seconds)

    def timed():
        seen = ask(requests)
        return {"tps": seen["rps"], "requests": requests, **{f"p{share}_ms": seen[f"p{share}_latency_ms"] for share in (50, 99)}}

    return timed


def by_pgbench(server, load, _side, clients, seconds):
    """Measures with pgbench. Its clients are sessions that start with the run. Their start is not counted."""
    drawn = ["-D", f"entries={server.setup.entries}", "-D", f"value={kd.value(server.setup.value_size)}"]
    head = [server.bin / "pgbench", *server.connection, "-n", "-M", "prepared", "-c", clients, "-j", 1, *drawn]

    def ask(length, log=()):
        return output([*head, *length, *log, "-f", "-", "postgres"], input=load.script())

    def timed():
        with tempfile.TemporaryDirectory() as name:
            # pgbench takes whole seconds, which include the start of the sessions. A shorter run is given as a number
            # of transactions.
            length = ["-T", round(seconds + began)] if seconds >= 1 else ["-t", max(1, int(seconds * 10_000 / clients))]
            seen = Pgbench.result(ask(length, ["-l", "--sampling-rate", 0.05, "--log-prefix", f"{name}/pgbench_log"]), Path(name))
        return {**{name: seen[name] for name in ("tps", "requests", "p50_ms", "p99_ms")}, "connecting": connecting}

    before, start = processes.cpu_seconds(server.pid), time.monotonic()
    ask(["-t", 1])
    connecting, began = processes.cpu_seconds(server.pid) - before, time.monotonic() - start
    return timed


HEAD = ("", "who answers", "per second", "spread")
CPU = ("CPU µs a request", "front", "back", "p50 ms", "p99 ms")
BESIDE = (CPU[0], "of the first", *CPU[1:])
COSTS = ("SETs a transaction", "WAL bytes a SET", "transaction ids a million")
READS = (*HEAD, "of the first", "must", *BESIDE)
WRITES = (*HEAD, "of the first", "must", "of Redis", "aim", *BESIDE, *COSTS)
GROWN = ("clients", *HEAD[2:], *CPU, *COSTS)


def render(summary, facts, options):
    runs = min(row["runs"] for row in summary)
    parts = [f"""# Table caches by the Redis protocol

{ground(facts['machine'])}; {', '.join(facts['versions'])}. Medians of {runs}; {CLIENTS} clients, unix sockets; {options.entries:,} keys in
each, 37-byte values. redis-benchmark asks pgcache and Redis; `pgbench -M prepared` asks a plain table of the same columns, key
and fillfactor. fsync and synchronous_commit are on; all tables lie in shared_buffers; no checkpoint and no VACUUM comes in
between. A hot entry has a copy in the hot tier; *past the tier* is with pgcache.hot_tier off, which the counters of each run must
confirm. CPU is that of all processes of the server, without the start of SQL's sessions. A ratio below its must is **bold**."""]  # fmt: skip
    for way, title in WAYS.items():
        found = [row for row in summary if row["way"] == way]
        reads = [line for load in LOADS if not load.writes for line in beside(found, load)]
        writes = [line for load in LOADS if load.writes and load is not GROW for line in beside(found, load)]
        tables = [markdown(head, lines) for head, lines in ((READS, reads), (WRITES, writes)) if lines]
        grown = sorted((row for row in found if row["load"] == GROW.name), key=lambda row: row["clients"])
        if grown:
            tables.append(f"{GROW.title}:\n\n{markdown(GROWN, [grown_cells(row) for row in grown])}")
        if tables:
            parts.append("\n\n".join([f"## {title}", *tables]))
    return "\n\n".join(parts)


def beside(summary, load):
    """Compares each side of a load with the first side and with Redis."""
    found = {row["side"]: row for row in summary if row["load"] == load.name}
    first, redis = found.get(load.sides[0]), found.get("redis")
    for side in load.sides:
        if row := found.get(side):
            bounds = [*ratio(row, first, load.must), *(ratio(row, redis, load.aim) if load.writes else ())]
            used, *parts = cpu(row)
            spent = (used, f"{row['cpu_us'] / first['cpu_us']:.2f}" if first and first["cpu_us"] else "", *parts)
            yield (load.title, SIDES[side], *rate(row), *bounds, *spent, *(costs(row) if load.writes else ()))


def ratio(row, other, bound):
    """Returns the ratio to the other side, and the goal, which only a table cache must reach."""
    if not other or not other["tps"]:
        return "", ""
    over, is_bound = row["tps"] / other["tps"], row["side"] == "table" and bound
    return f"**{over:.2f}**" if is_bound and over < bound else f"{over:.2f}", f"{bound:g}" if is_bound else ""


def grown_cells(row):
    return f"{row['clients']:,}", *rate(row), *cpu(row), *costs(row)


def rate(row):
    return f"{row['tps']:,.0f}", f"{row['tps_min']:,.0f} to {row['tps_max']:,.0f}"


def cpu(row):
    return tuple("" if row[name] is None else f"{row[name]:.2f}" for name in ("cpu_us", "front_us", "back_us", "p50_ms", "p99_ms"))


def costs(row):
    shapes = {"batch": "{:.1f}", "wal_bytes": "{:,.0f}", "ids": "{:,.0f}"}
    return tuple("" if row[name] is None else shape.format(row[name]) for name, shape in shapes.items())
