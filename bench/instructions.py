"""Counts the server's user instructions for one request. The count does not depend on other load, and hardly on the
machine.

One session sends the same prepared statement many times, then many more times. The difference of the two counts is
divided by the difference of the requests, so that connecting and warming up cancel out. valgrind's callgrind counts the
instructions, because it works where the processor's own counters cannot be read. The kernel's work for a request is not
included.
"""

import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from . import key_distribution as kd, scripts
from .base import ROOT, BenchError, Journal, ground, insist, output, say
from .servers import CLUSTER, DATABASE, Postgres, Redis, Setup, program
from .stats import spread
from .systems import SYSTEMS
from .tables import markdown
from .tier import FIRST, STATEMENTS as TIMED

SIZES = {
    "full": {"entries": 1_000_000, "requests": 3_000, "repeats": 3},
    "quick": {"entries": 100_000, "requests": 2_000, "repeats": 1},
    "smoke": {"entries": 2_000, "requests": 300, "repeats": 1},
}
HEATED = 1_000  # entries that are read; the tier has a copy of each before the count begins
TIER_MB = 64
QUIET = ("autovacuum = off", "pgcache.expire_interval = 0")  # no process but the session ends while it is counted

SETUP = """CREATE EXTENSION pgcache;
SELECT cache_create('hot'); SELECT cache_create('written'); SELECT cache_create('memory', storage => 'memory');
CREATE UNLOGGED TABLE plain (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
INSERT INTO plain SELECT {first} + n, '{value}' FROM generate_series(1, {entries}) AS n;
INSERT INTO hot SELECT * FROM plain; INSERT INTO written SELECT * FROM plain;
VACUUM (ANALYZE) plain, hot, written; CHECKPOINT"""

# Fills the tier of a newly started server, which is empty.
HEAT = """SELECT count(cache_set(({first} + n)::text, '{value}', NULL, 'memory')) FROM generate_series(1, {heated}) AS n;
SELECT count(cache_get(({first} + n)::text, 'hot')) FROM generate_series(1, {heated}) AS n;
SELECT count(cache_get(({first} + n)::text, 'hot')) FROM generate_series(1, {heated}) AS n"""

STATEMENTS = {
    "select length": scripts.statement("length", ":n"),
    **TIMED,
    # Plain SQL on a cache, from which pgcache hides expired rows, and the same condition written by hand.
    "select from a cache": scripts.statement("select_by_key", ":n", table="hot"),
    "select, deadline by hand": "SELECT value FROM plain WHERE key = :n AND (expires_at IS NULL OR expires_at > now())",
}
COMMANDS = ("GET", "SET")
LONGER = 3  # times the requests of the shorter run
STARTS_WITHIN = "600"  # seconds: a server under callgrind is fifty times as slow

# The measured statement, the statement that it is compared with, and the ratio that it must not and should not exceed.
RATIOS = (
    ("get hot", "select length", 1.12, 1.06),
    ("get memory", "select length", None, None),
    ("set memory", "select length", None, None),
    ("get hot", "select by key", None, None),
    ("get, tier off", "select by key", None, None),
    ("set unlogged", "upsert", 1.0, 0.9),
    ("select from a cache", "select, deadline by hand", 1.05, None),
)


def add_options(parser):
    parser.add_argument("--entries", type=int)
    parser.add_argument("--requests", type=int, help="of the shorter of the two runs; the longer has three times as many")


def run(options):
    output([ROOT / "scripts/need.sh", "valgrind"])
    setup = Setup(options.out, options.entries, clients=1, tier_mb=TIER_MB, conf=QUIET)
    journal = Journal(options.out, ("repetition",))
    with Postgres(setup) as postgres, counted(postgres.bin / "postgres") as server:
        values = {"first": FIRST, "value": kd.value(37), "entries": options.entries, "heated": HEATED}
        postgres.sql(*SETUP.format(**values).split(";"))
        journal.facts["versions"] = [postgres.version(), f"Redis {Redis(setup, SYSTEMS[0]).version().split()[-1]}"]
        output([CLUSTER, "restart", postgres.name], env={**os.environ, **server.environment})
        heater, *_ = postgres.sql("SELECT pg_backend_pid()", *HEAT.format(**values).split(";")).splitlines()
        server.wait_for(heater)
        for repetition in range(options.repeats):
            if not journal.has(repetition):
                journal.add({"repetition": repetition, **measure(postgres, server, options)})
                say(f"repetition {repetition + 1} of {options.repeats}")
    summary = summarise(journal, options)
    if options.size == "smoke":
        insist(all(1_000 < row["median"] < 1_000_000 for row in summary["costs"]), "a count is out of reason")
    journal.report(summary, render(summary))


def measure(postgres, server, options):
    row = {name: for_each(options.requests, lambda count, name=name: statement(postgres, server, name, count)) for name in STATEMENTS}
    for command in COMMANDS:
        row[f"redis {command}"] = for_each(options.requests, lambda count, command=command: redis(options, command, count))
    return row


def for_each(requests, count):
    """Returns the instructions for one request, from the difference of the longer and the shorter run."""
    return (count(requests * LONGER) - count(requests)) / (requests * (LONGER - 1))


def statement(postgres, server, name, requests):
    """Runs with a fixed seed, so that the longer run begins with the requests of the shorter one."""
    sql = STATEMENTS[name]
    draw = f"\\set n {FIRST} + random(1, {HEATED})\n" if ":n" in sql else ""
    words = ["env", "PGOPTIONS=-c pgcache.hot_tier=off"] if "tier off" in name else []
    words += [postgres.bin / "pgbench", *postgres.connection, "-n", "-M", "prepared", "-c", 1, "-t", requests]
    server.clear()
    output([*words, "--random-seed=1", "-D", f"value={kd.value(37)}", "-f", "-", DATABASE], input=f"{draw}{sql};\n")
    return server.largest(2)  # pgbench first opens another session of its own


def redis(options, command, requests):
    """Uses a new server for each run, because Redis is one process, which writes its counts when it ends."""
    with counted(shutil.which(program("redis-server"))) as server:
        with CountedRedis(Setup(options.out), SYSTEMS[0], server.wrapper) as redis_server:
            for name, count in (("SET", HEATED), (command, requests)):
                words = ["redis-benchmark", "-s", redis_server.socket, "-c", 1, "-n", count, "-r", HEATED, "-d", 37]
                output([*words, "-t", name.lower(), "--csv"])
        return server.largest(1)


class CountedRedis(Redis):
    def __init__(self, setup, system, wrapper):
        super().__init__(setup, system)
        self.wrapper = wrapper

    def words(self):
        return [self.wrapper, *super().words()[1:]]


@contextmanager
def counted(server):
    """Runs a server's program under callgrind, which writes a file for each process that ends."""
    folder = Path(tempfile.mkdtemp(prefix="pgcache-count-"))
    folder.chmod(0o777 if os.geteuid() == 0 else 0o700)  # Postgres then runs as another user, who writes here, too
    try:
        yield Counts(folder, server)
    finally:
        shutil.rmtree(folder)


class Counts:
    def __init__(self, folder, server):
        self.folder, self.wrapper = folder, folder / "server"
        tool = f"valgrind --quiet --tool=callgrind --callgrind-out-file='{folder}/%p.counts'"
        self.wrapper.write_text(f"#!/bin/sh\nexec {tool} '{server}' \"$@\"\n")
        self.wrapper.chmod(0o755)

    @property
    def environment(self):
        return {"PGCACHE_POSTGRES": str(self.wrapper), "PGCTLTIMEOUT": STARTS_WITHIN}

    def clear(self):
        for file in self.folder.glob("*.counts"):
            file.unlink()

    def wait_for(self, process):
        until(lambda: total(self.read(f"{process}.counts")))

    def largest(self, processes):
        """Waits for this many processes to end, and returns the instructions of the one that ran the most."""

        def counts():
            found = [total(self.read(file.name)) for file in self.folder.glob("*.counts")]
            return found if len(found) >= processes and all(found) else None

        return max(until(counts))

    def read(self, name):
        file = self.folder / name
        return file.read_text() if file.exists() else ""


def until(found, patience=120):
    """Waits for a process to end. After its client has disconnected, it still has to write its counts."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.2)
    raise BenchError("callgrind wrote no counts")


def total(text):
    """Returns the instructions of a whole process; 0 if the file is incomplete, which its missing last line shows."""
    found = re.search(r"^totals: (\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def summarise(journal, options):
    rows = journal.rows
    costs = [{"what": name, **spread([row[name] for row in rows])} for name in (*STATEMENTS, *(f"redis {name}" for name in COMMANDS))]
    ratios = [
        {"what": f"instructions: {name} over {beside}", "must": must, "aim": aim, "low": True,
         **spread([row[name] / row[beside] for row in rows])}
        for name, beside, must, aim in RATIOS
    ]  # fmt: skip
    sizes = {"entries": options.entries, "requests": options.requests, "heated": HEATED}
    return {**journal.facts, **sizes, "runs": len(rows), "costs": costs, "ratios": ratios}


def render(summary):
    costs = [(row["what"], f"{row['median']:,.0f}", f"{row['least']:,.0f} to {row['most']:,.0f}") for row in summary["costs"]]
    ratios = [
        (row["what"], row["must"] or "", row["aim"] or "", f"{row['median']:.3f}", f"{row['least']:.3f} to {row['most']:.3f}")
        for row in summary["ratios"]
    ]
    return f"""# User instructions of the server for one request

{', '.join(summary['versions'])}; {ground(summary['machine'])}; {summary['entries']:,} keys, of which {summary['heated']:,} are asked for, 37-byte
values, one session on a unix socket, prepared statements, by callgrind: {summary['requests']:,} requests and {LONGER} times as many, and of
these the difference; {summary['runs']} repetitions. What the kernel does for a request, socket and commit among it, is not in here:
that is in the processor time beside the rates.

{markdown(('request', 'instructions', 'spread'), costs)}

At most so much, over what stands beside it:

{markdown(('what', 'must', 'aim', 'median', 'spread'), ratios)}"""
