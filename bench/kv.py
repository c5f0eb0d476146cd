"""Runs the loads of a key-value store on pgcache and on a real etcd: PUT, GET, RANGE, DELETE, watchers,
transactions."""

import shutil
from dataclasses import dataclass, replace

from .base import Journal, drive, ground, insist, named, say
from .servers import Etcd, Postgres, Setup
from .stats import in_ms, summarise
from .tables import markdown

SIZES = {
    "full": {"seconds": 30, "repeats": 3},
    "quick": {"seconds": 3, "repeats": 1},
    "smoke": {"seconds": 1, "repeats": 1},
}
SYSTEMS = ("memory", "unlogged", "logged", "etcd")
FIELDS = ("rate", "mean_ms", "p50_ms", "p95_ms", "p99_ms")
BAD = ("errors", "wrong", "lost")


@dataclass(frozen=True)
class Load:
    """A published load, and its published figures."""

    name: str
    title: str
    clients: int
    operations: int = 0  # operations of each client, or events of all clients
    seconds: float = 0
    published: str = ""
    etcd: str = ""  # the figure of etcd v3 in the same report

    def runs_on(self, system):
        """Returns whether the load can run on a system. Writes to a memory cache take effect at once, so it cannot run
        the loads that write all or nothing."""
        return (self.name, system) != ("transactions", "memory")

    def shortened(self, seconds):
        return replace(self, seconds=min(self.seconds, seconds))

    def shrunk(self):
        """Returns the load in a length that only shows that it runs. The number of watchers stays."""
        operations = self.operations if self.name == "watchers" else min(self.operations, 40)
        return replace(self, operations=operations, seconds=min(self.seconds, 1))


LOADS = (
    Load("half-puts", "50 clients, 1,000 operations each: half PUT, half GET", 50, 1000, 0, "921/s, mean 54 ms", "about 1,500/s"),
    Load("puts", "20 clients, only PUT", 20, 0, 30, "330/s in memory, 173/s on RocksDB", "about 2,000/s"),
    Load("everything", "30 clients: 40 % PUT, 40 % GET, 10 % RANGE, 10 % DELETE", 30, 0, 20, "1,455/s in memory, 4,921/s on RocksDB"),
    Load("watchers", "100 watchers, 1,000 events: 10 for each", 100, 1000, 0, "none lost", "over 1,000 events/s"),
    Load("transactions", "10 clients, 1,000 transactions each over three keys", 10, 1000, 0, "no errors"),
)


def add_options(parser):
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--loads", help="comma separated (all)")


def run(options):
    loads = named(LOADS, options.loads)
    loads = [load.shrunk() if options.size == "smoke" else load.shortened(options.seconds) for load in loads]
    here = [system for system in options.systems.split(",") if system != "etcd" or shutil.which("etcd")]
    insist(here and set(here) <= set(SYSTEMS), f"nothing to measure: there are {', '.join(SYSTEMS)}, and etcd must be installed")
    journal = Journal(options.out, ("system", "load", "repetition"))
    setup = Setup(options.out, clients=150, tier_mb=64)
    for start, systems in ((lambda: Postgres(setup), SYSTEMS[:3]), (lambda: Etcd(setup), SYSTEMS[3:])):
        todo = [(system, load, repetition) for system in systems if system in here for load in loads if load.runs_on(system)
                for repetition in range(options.repeats) if not journal.has(system, load.name, repetition)]  # fmt: skip
        if todo:
            with start() as server:
                for system, load, repetition in todo:
                    row = measure(server, system, load)
                    if not failures([row]):  # one that failed is run again
                        journal.add({"repetition": repetition, **row})
                    say(f"{load.name} on {system}: {row['rate']:,.0f}/s, p99 {row['p99_ms']:.1f} ms")
                    insist(not failures([row]), "; ".join(failures([row])))
    summary = summarise(journal.rows, ("load", "system", "version"), (*FIELDS, *BAD), of="rate")
    journal.report(summary, render(summary, loads, journal.facts["machine"]))


def measure(server, system, load):
    if system != "etcd":
        server.sql("CREATE EXTENSION IF NOT EXISTS pgcache")
        server.sql("SELECT cache_drop(old) FROM to_regclass('kv') AS old WHERE old IS NOT NULL")
        server.sql(f"SELECT cache_create('kv', storage => '{system}')")
    size = {"clients": load.clients, "operations": load.operations, "seconds": load.seconds}
    seen = drive("kv", store="etcd" if system == "etcd" else "pgcache", socket=server.socket, load=load.name, **size)
    known = {"system": system, "load": load.name, "version": server.version(), "rate": seen["operations"] / seen["seconds"]}
    return {**known, **in_ms(seen), **{name: seen[name] for name in ("operations", "seconds", "first_error", *BAD)}}


def failures(rows):
    """Returns the failures of a run: violations of conditions that hold on every machine."""
    found = []
    for row in rows:
        name = f"{row['load']} on {row['system']}"
        if row["errors"]:
            found.append(f"{name}: {row['errors']} errors, the first: {row['first_error']}")
        found += [f"{name}: {row[what]} {said}" for what, said in (("wrong", "wrong answers"), ("lost", "events were lost")) if row[what]]
        if not row["operations"]:
            found.append(f"{name}: nothing was done")
    return found


HEAD = ("system", "per second", "spread", "mean ms", "p50 ms", "p95 ms", "p99 ms", *BAD)


def render(summary, loads, machine):
    versions = ", ".join(sorted({row["version"] for row in summary}))
    parts = [f"""# Key-value store loads

{ground(machine)}; {versions}; medians of {min(row['runs'] for row in summary)}. Client and server share the machine; every commit of a
logged cache and of etcd goes to the disk."""]  # fmt: skip
    for load in loads:
        length = f", {load.seconds:g} s" if load.seconds else ""
        lines = [cells(row) for row in summary if row["load"] == load.name]
        published = f"Published: {load.published}" + (f"; for etcd v3 {load.etcd}" if load.etcd else "")
        parts.append(f"## {load.title}{length}\n\n{markdown(HEAD, lines)}\n\n{published}.")
    return "\n\n".join(parts)


def cells(row):
    label = row["system"] if row["system"] == "etcd" else f"pgcache, {row['system']}"
    times = (f"{row[name]:,.2f}" for name in FIELDS[1:])
    spread = f"{row['rate_min']:,.0f} to {row['rate_max']:,.0f}"
    return (label, f"{row['rate']:,.0f}", spread, *times, *(f"{row[name]:g}" for name in BAD))
