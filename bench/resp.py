"""Measures pgcache's Redis protocol and Redis: single commands, pipelines, many keys, and a growing number of clients.

All servers run at the same time, and redis-benchmark sends requests to one of them at a time. Other load affects a
server's CPU time per request less than its rate, so both are reported.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace

from . import key_distribution as kd, processes
from .base import Journal, ground, insist, named, output, say
from .servers import Setup, of
from .stats import summarise
from .systems import ALL, LABELS, RESP_MEMORY
from .tables import markdown
from .tools import RedisBenchmark

SIZES = {
    "full": {"seconds": 3.0, "repeats": 5, "entries": 1_000_000, "growth": "1,10,100,1000,10000", "ways": "unix,tcp",
             "systems": "redis_no_save,redis_new_no_save,redis_new_io_threads,resp_memory"},
    "quick": {"seconds": 1.0, "repeats": 3, "entries": 200_000, "growth": "1,50,500", "ways": "unix", "systems": "redis_no_save,resp_memory"},
    "smoke": {"seconds": 0.05, "repeats": 1, "entries": 2_000, "growth": "1,20", "ways": "unix,tcp", "systems": "redis_no_save,resp_memory"},
}  # fmt: skip
CLIENTS = 50
FIRST = 2_000  # requests that measure the pace
REFERENCE = "redis_no_save"
FIELDS = ("tps", "cpu_us", "p50_ms", "p99_ms")
KEY = kd.PREFIX + "__rand_int__"


@dataclass(frozen=True)
class Load:
    name: str
    title: str
    command: str
    pipeline: int = 1
    keys: int = 1
    rate: tuple = ()  # the least ratio to the rate of Redis: on a unix socket, over TCP
    cpu: float = 0.0  # the largest ratio to the processor time of Redis

    def words(self, value):
        return [self.command, *[KEY] * self.keys, *([value] if self.command == "SET" else [])]


LOADS = (
    Load("get", "GET", "GET", rate=(1.1, 1.0), cpu=1.0),
    Load("set", "SET", "SET", rate=(1.1, 1.0), cpu=1.0),
    Load("get16", "GET, pipelines of 16", "GET", pipeline=16, rate=(1.8, 1.8), cpu=0.6),
    Load("set16", "SET, pipelines of 16", "SET", pipeline=16, rate=(1.8, 1.8), cpu=0.6),
    Load("mget", "MGET of 100 keys", "MGET", keys=100, rate=(1.5, 1.5)),
)


def add_options(parser):
    parser.add_argument("--systems", help=f"names as in systems.py, {REFERENCE} among them")
    parser.add_argument("--entries", type=int, help="values of 37 bytes that are there before")
    parser.add_argument("--ways", help="unix, tcp")
    parser.add_argument("--growth", help="numbers of clients, for GET one at a time")


def run(options):
    systems = named([system for system in ALL if system.is_redis or system.redis_protocol], options.systems)
    journal = Journal(options.out, ("way", "load", "clients", "system", "repetition"))
    growth = [int(number) for number in options.growth.split(",")]
    most = max(growth)
    for way in options.ways.split(","):
        setup = Setup(options.out, options.entries, clients=most, tcp=way == "tcp", tier_mb=max(64, options.entries // 1000))
        todo = [(load, clients, repetition, system) for repetition in range(options.repeats)
                for load, clients in asked(growth, way) for system in systems
                if not journal.has(way, load.name, clients, system.name, repetition)]  # fmt: skip
        if not todo:
            continue
        with ExitStack() as servers:
            running = {system.name: servers.enter_context(of(system, setup)) for system in systems}
            for server in running.values():
                server.load()
                check(server)
            journal.facts["versions"] = {name: server.version() for name, server in running.items()}
            for load, clients, repetition, system in todo:
                row = measure(running[system.name], load, clients, options.seconds)
                journal.add({"way": way, "repetition": repetition, **row})
                say(f"{way:<5}{load.name:<6}{clients:>6} {system.name:<22}{row['tps']:>11,.0f}/s {row['cpu_us']:>7.2f} µs")
    if options.size == "smoke":
        wanted = len(options.ways.split(",")) * len(LOADS) * len(systems) + len(growth) * len(systems)
        insist(len(journal.rows) == wanted, f"{len(journal.rows)} runs of {wanted}")
        insist(all(row["tps"] > 0 for row in journal.rows), "a server was asked and answered nothing")
    summary = summarise(journal.rows, ("way", "load", "clients", "system"), FIELDS)
    journal.report(summary, render(summary, journal.facts, growth))


def asked(growth, way):
    """Returns the loads, each with its numbers of clients. Only over a unix socket does the number of clients grow."""
    return [*((load, CLIENTS) for load in LOADS), *((replace(LOADS[0], name="grow"), clients) for clients in growth if way == "unix")]


def check(server):
    """Checks that the loaded entries exist and are returned, because redis-benchmark does not check replies."""
    entries, value = server.setup.entries, kd.value(server.setup.value_size)
    insist(server.entries() == entries, f"{server.system.label} has {server.entries()} entries of {entries}")
    key = f"{kd.PREFIX}{1:012}"
    found = server.cli("MGET", key, "no such key", key).splitlines()
    insist(found == [value, "", value], f"{server.system.label} does not answer what was stored")


def words(server, load, clients, requests):
    head = ["redis-benchmark", *server.tool_connection, "-c", clients, "-P", load.pipeline, "-n", requests, "--csv"]
    return [*head, "-r", kd.slots(server.setup.entries), *load.words(kd.value(server.setup.value_size))]


def measure(server, load, clients, seconds):
    ask = lambda requests: RedisBenchmark.parse(output(words(server, load, clients, requests)))  # noqa: E731
    requests = RedisBenchmark.requests(ask, max(FIRST, clients * load.pipeline), seconds)
    before = processes.cpu_seconds(server.pid)
    seen = ask(requests)
    cpu = processes.cpu_seconds(server.pid) - before
    times = {f"p{share}_ms": seen[f"p{share}_latency_ms"] for share in (50, 99)}
    known = {"load": load.name, "clients": clients, "system": server.system.name}
    return {**known, "tps": seen["rps"], "cpu_us": cpu / requests * 1e6, "requests": requests, **times}


HEAD = ("", "system", "per second", "spread", "of Redis", "must", "CPU µs a request", "of Redis", "must", "p50 ms", "p99 ms")


def render(summary, facts, growth):
    versions = "; ".join(f"{LABELS[name]}: {version}" for name, version in facts["versions"].items())
    runs = min(row["runs"] for row in summary)
    parts = [f"""# The Redis protocol

{ground(facts['machine'])}; {versions}. Medians of {runs}; {CLIENTS} clients, redis-benchmark for all; client and server share the
machine. A pipeline counts its commands, an MGET is one."""]  # fmt: skip
    for way, title in (("unix", "Unix socket"), ("tcp", "TCP, loopback")):
        lines = [line for load in LOADS for line in rows(summary, way, load, CLIENTS, load.title)]
        if lines:
            parts.append(f"## {title}\n\n{markdown(HEAD, lines)}")
    grown = [line for clients in growth for line in rows(summary, "unix", replace(LOADS[0], name="grow", rate=(), cpu=0.0), clients, f"{clients:,}")]
    if grown:
        parts.append(f"## Clients\n\nGET, one at a time, unix socket.\n\n{markdown(HEAD, grown)}")
    return "\n\n".join(parts)


def rows(summary, way, load, clients, title):
    found = [row for row in summary if (row["way"], row["load"], row["clients"]) == (way, load.name, clients)]
    redis = next((row for row in found if row["system"] == REFERENCE), None)
    return [cells(row, redis, load, title) for row in found]


def cells(row, redis, load, title):
    ours, place = row["system"] == RESP_MEMORY.name, ("unix", "tcp").index(row["way"])
    over = [f"{row[name] / redis[name]:.2f}" if redis and redis[name] else "" for name in ("tps", "cpu_us")]
    rate = f"{load.rate[place]:g}" if ours and load.rate else ""
    cpu = f"{load.cpu:g}" if ours and load.cpu else ""
    spread = f"{row['tps_min']:,.0f} to {row['tps_max']:,.0f}"
    costs = (over[0], rate, f"{row['cpu_us']:.2f}", over[1], cpu)
    return (title, LABELS[row["system"]], f"{row['tps']:,.0f}", spread, *costs, f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}")
