"""Measures how slow operations of one client delay other clients of the Redis protocol whose entries are in memory.

Sixteen clients read a memory cache all the time, while other clients and sessions run slow operations, one after the
other. All of them share the machine's processors, so the report includes the processor time of a slow operation.
"""

import os
import socket
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import key_distribution as kd
from .base import Journal, ground, insist, named, output, say
from .servers import Door, Setup
from .stats import summarise
from .tables import markdown
from .tools import RedisBenchmark

SIZES = {
    "full": {"seconds": 3.0, "repeats": 5, "entries": 1_000_000},
    "quick": {"seconds": 1.0, "repeats": 3, "entries": 200_000},
    "smoke": {"seconds": 0.05, "repeats": 1, "entries": 2_000},
}  # fmt: skip
CLIENTS = 16
FIRST = 2_000  # requests that measure the pace
ENDLESS = 100_000_000  # requests of a client that is stopped before it has sent them all
MANY = 100_000  # keys of an MGET
LONG = 16_000_000  # bytes of a value
KEY = kd.PREFIX + "__rand_int__"
FIELDS = ("tps", "p50_ms", "p99_ms", "longest_ms")
# The Redis databases: the hot entries, a row that another session has locked, a slow trigger, and another memory cache.
HOT, LOCKED, TRIGGERED, OTHER = range(4)
TABLES = """SELECT cache_set('k', 'v', cache => 'locked');
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END';
CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION slow();
CREATE ROLE stranger LOGIN PASSWORD 'right'"""


SILENT = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Stalled(Door):
    """A server that also has caches for the slow operations."""

    CACHES = (
        *Door.CACHES,
        ("public.locked", "storage => 'unlogged'"),
        ("public.triggered", "storage => 'logged'"),
        ("public.other", "storage => 'memory', value_type => 'bytea'"),
    )

    def load(self):
        super().load()
        self.sql(*TABLES.split(";\n"), database="postgres")
        hba = Path(self.folder, "data/pg_hba.conf")
        hba.write_text("local all stranger scram-sha-256\n" + hba.read_text())
        self.sql("SELECT pg_reload_conf()", database="postgres")
        output(["redis-cli", "-s", self.path, "-x", "SET", "long"], input="x" * LONG)
        insist(self.cli("STRLEN", "long") == str(LONG), "the long value is not there")


@contextmanager
def client(server, words, database=HOT, clients=1):
    """Runs clients that repeat one request."""
    head = ["redis-benchmark", *server.tool_connection, "--dbnum", database, "-c", clients, "-n", ENDLESS, "-q"]
    with ended(subprocess.Popen([str(word) for word in [*head, "-r", server.setup.entries, *words]], **SILENT)):
        yield


@contextmanager
def session(server, statement):
    """Runs a session that executes a statement and keeps its locks. At the end its backend is terminated, too."""
    words = [server.bin / "psql", "-X", "-q", *server.connection, "postgres", "-c", statement]
    ends = {**os.environ, "PGOPTIONS": "-c client_connection_check_interval=100"}
    with ended(subprocess.Popen([str(word) for word in words], env=ends, **SILENT)):
        yield


@contextmanager
def ended(process):
    try:
        yield
        insist(process.poll() is None, f"{process.args[0]} ended before the run did")
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def repeated(act, every=0.0):
    """Repeats a call in a thread."""
    stop = threading.Event()
    failed = []

    def work():
        try:
            while not stop.is_set():
                act()
                stop.wait(every)
        except Exception as reason:  # noqa: BLE001: raised below
            failed.append(reason)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    insist(not failed, f"what was to be slow failed: {failed}")


@contextmanager
def nothing(_server):
    yield


def computes(_server):
    """Runs a process without requests to the server, to show the cost that a busy client has for others by its
    processor time alone."""
    return ended(subprocess.Popen(["sh", "-c", "while :; do :; done"], **SILENT))


@contextmanager
def locked_row(server):
    with session(server, "BEGIN; UPDATE locked SET value = 'x'; SELECT pg_sleep(600)"):
        with client(server, ["SET", "k", "v"], LOCKED, 4):
            yield


def slow_trigger(server):
    return client(server, ["SET", KEY, "v"], TRIGGERED, 4)


def absent_rows(server):
    return client(server, ["GET", KEY], LOCKED, 4)


@contextmanager
def commits(server):
    server.sql("ALTER TABLE triggered DISABLE TRIGGER slow", database="postgres")
    with client(server, ["SET", KEY, "v"], TRIGGERED, 4):
        yield
    server.sql("ALTER TABLE triggered ENABLE TRIGGER slow", database="postgres")


def locked_catalog(server):
    return repeated(lambda: server.sql("VACUUM FULL pg_class", database="postgres"))


def long_value(server):
    return client(server, ["GET", "long"])


def many_keys(server):
    keys = [f"k{number:05}" for number in range(10_000)] * (MANY // 10_000)
    return client(server, ["MGET", *keys])


def all_keys(server):
    return client(server, ["KEYS", "no such key*"])


@contextmanager
def flush(server):
    """Flushes a cache with as many entries as there are hot ones."""
    rows = kd.rows_sql(server.setup.entries, kd.value(server.setup.value_size))
    server.sql(f"SELECT count(cache_set_bytes(key, value::bytea, NULL, 'other')) FROM ({rows}) AS entry", database="postgres")
    with repeated(lambda: server.cli("-n", OTHER, "FLUSHDB"), 0.1):
        yield


def wrong_passwords(server):
    def attempt():
        sockets = [wire(server, b"AUTH stranger wrong\r\n") for _ in range(20)]
        for each in sockets:
            insist(b"WRONGPASS" in each.recv(1000), "a wrong password is not refused")
            each.close()

    return repeated(attempt)


@contextmanager
def unread(server):
    """Requests 100 MB of replies at once and does not read them."""
    sockets = []
    with repeated(lambda: sockets.append(wire(server, b"GET long\r\n" * 6)), 0.2):
        yield
    for each in sockets:
        each.close()


@contextmanager
def byte_by_byte(server):
    sockets = [wire(server, b"") for _ in range(100)]
    with repeated(lambda: [each.send(b"*") for each in sockets], 0.1):
        yield
    for each in sockets:
        each.close()


def wire(server, sent):
    made = socket.socket(socket.AF_UNIX)
    made.connect(server.path)
    made.send(sent)
    return made


@dataclass(frozen=True)
class Thing:
    name: str
    title: str
    does: Callable


THINGS = (
    Thing("nothing", "nothing", nothing),
    Thing("computes", "a process that computes, and asks the server nothing", computes),
    Thing("row", "four clients wait for a row that a session has locked", locked_row),
    Thing("trigger", "four clients write to a table whose trigger takes 100 ms", slow_trigger),
    Thing("absent", "four clients ask a table for keys that it has not got", absent_rows),
    Thing("commit", "four clients write to a logged table: each commit waits for the disk", commits),
    Thing("catalog", "VACUUM FULL pg_class, again and again", locked_catalog),
    Thing("long", "a client reads a value of 16 MB, again and again", long_value),
    Thing("mget", f"a client asks for {MANY:,} keys at once, again and again", many_keys),
    Thing("keys", "KEYS over all entries, again and again", all_keys),
    Thing("flush", "FLUSHDB of a cache as large, and again when it is empty", flush),
    Thing("auth", "20 clients say wrong passwords, again and again", wrong_passwords),
    Thing("unread", "clients that ask for 100 MB each, and do not read", unread),
    Thing("bytes", "100 clients that send a byte each 100 ms", byte_by_byte),
)


def add_options(parser):
    parser.add_argument("--entries", type=int, help="hot ones, of 37 bytes")
    parser.add_argument("--things", help="names in stalls.py")


def run(options):
    things = named(THINGS, options.things)
    journal = Journal(options.out, ("thing", "repetition"))
    conf = ("pgcache.resp_max_request = '32MB'", "pgcache.hot_max_value = '20MB'")
    setup = Setup(options.out, options.entries, clients=500, tier_mb=max(256, options.entries // 500), conf=conf)
    with Stalled(setup) as server:
        server.load()
        journal.facts["version"] = server.version()
        for repetition in range(options.repeats):
            for thing in things:
                if not journal.has(thing.name, repetition):
                    with thing.does(server):
                        row = measure(server, options.seconds)
                    journal.add({"thing": thing.name, "repetition": repetition, **row})
                    say(f"{thing.name:<10}{row['tps']:>11,.0f}/s   p99 {row['p99_ms']:.2f} ms   longest {row['longest_ms']:.1f} ms")
    summary = summarise(journal.rows, ("thing",), FIELDS, of="p99_ms")
    journal.report(summary, render(summary, journal.facts))


def measure(server, seconds):
    """Returns the latencies that the hot clients measure."""
    words = ["redis-benchmark", *server.tool_connection, "-c", CLIENTS, "--csv", "-r", kd.slots(server.setup.entries)]
    ask = lambda requests: RedisBenchmark.parse(output([*words, "-n", requests, "GET", KEY]))  # noqa: E731
    seen = ask(RedisBenchmark.requests(ask, FIRST, seconds))
    times = {f"p{share}_ms": seen[f"p{share}_latency_ms"] for share in (50, 99)}
    return {"tps": seen["rps"], **times, "longest_ms": seen["max_latency_ms"]}


HEAD = ("beside", "per second", "p50 ms", "p99 ms", "spread", "must", "longest ms")


def render(summary, facts):
    alone = next((row for row in summary if row["thing"] == "nothing"), None)
    must = f"{2 * alone['p99_ms'] + 1:.2f}" if alone else ""
    titles = {thing.name: thing.title for thing in THINGS}
    lines = [
        (titles[row["thing"]], f"{row['tps']:,.0f}", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}",
         f"{row['p99_ms_min']:.2f} to {row['p99_ms_max']:.2f}", "" if row is alone else must, f"{row['longest_ms']:.1f}")
        for row in summary
    ]  # fmt: skip
    return f"""# What a slow thing costs others

{ground(facts['machine'])}; {facts['version']}. {CLIENTS} clients read a memory cache, one GET at a time each, over a unix
socket, while the other thing is done; medians of {summary[0]['runs']}. It must leave their p99 within twice of what it is beside
nothing, plus 1 ms. Clients, sessions and server share the machine: part of each figure is the processor that the other
thing takes, and the row of a process that only computes is what that part can be.

{markdown(HEAD, lines)}"""
