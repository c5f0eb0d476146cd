"""Measures the cost of distributing keys over several servers: batches that are split, sessions, and how even the parts
are.

A batch of many keys becomes one call for each server that has some of them. So the fixed cost of a call determines how
the cost of a batch grows. It is derived from calls with 1 to 1,000 keys of a memory cache, as processor time of the
server, which other programs on the machine affect less than a rate.
"""

import subprocess
import time

from .base import Journal, ground, insist, say
from .processes import pss_mb, rate_and_cost
from .servers import DATABASE, Postgres, Setup
from .stats import middle
from .tables import markdown
from .tools import pgbench_rate

SIZES = {
    "full": {"seconds": 3, "repeats": 5, "keys": 1_000_000, "sessions": 100},
    "quick": {"seconds": 1, "repeats": 3, "keys": 1_000_000, "sessions": 50},
    "smoke": {"seconds": 1, "repeats": 1, "keys": 10_000, "sessions": 5},
}
CLIENTS = 8
BATCHES = (1, 10, 100, 1000)
SERVERS = (1, 3, 10, 100, 1000)
PARTS = (1024, 16384)
ENTRIES = 100_000
FILL = f"SELECT count(cache_set('user:' || n, repeat('v', 37), cache => 'c')) FROM generate_series(1, {ENTRIES}) AS n"
ONE = "\\set n random(1, {entries})\nSELECT cache_get('user:' || :n, 'c');\n"
# The keys are in the text of the statement itself, as a driver sends them.
MANY = "SELECT count(value) FROM cache_get_many(:keys, 'c');\n"
PLACE = "SELECT sum({call}) FROM (SELECT 'user:' || n AS key FROM generate_series(1, {keys}) AS n OFFSET 0) AS k"
FULLEST = """SELECT round(max(held) * {servers} / {keys}.0, 3) FROM (SELECT count(*) AS held FROM placed GROUP BY p{parts} % {servers}) AS s"""


def add_options(parser):
    parser.add_argument("--keys", type=int, help="keys whose servers are looked at")
    parser.add_argument("--sessions", type=int, help="idle sessions whose memory is taken")


def run(options):
    journal = Journal(options.out, ("repetition",))
    with Postgres(Setup(options.out, clients=max(CLIENTS, options.sessions), tier_mb=256)) as server:
        server.sql("CREATE EXTENSION pgcache", "SELECT cache_create('c', storage => 'memory')", FILL)
        journal.facts["version"] = server.version()
        journal.facts["fullest"] = fullest(server, options)
        for repetition in range(options.repeats):
            if not journal.has(repetition):
                journal.add({"repetition": repetition, **measure(server, options)})
    runs = journal.rows
    costs = {batch: middle([row["batches"][str(batch)] for row in runs]) for batch in BATCHES}
    summary = {
        "runs": len(runs),
        "batches": costs,
        "place": middle([row["place"] for row in runs]),
        "session": middle([row["session"] for row in runs]),
        "keys": options.keys,
        "fullest": journal.facts["fullest"],
    }
    journal.report(summary, render(summary, journal.facts))


def measure(server, options):
    batches = {str(batch): cost(server, options, batch) for batch in BATCHES}
    place = placing(server, options)
    session = memory_of_a_session(server, options.sessions)
    say(", ".join(f"{batch} keys {us:.1f} µs" for batch, us in batches.items()) + f", place {place:.3f} µs, session {session:.2f} MB")
    return {"batches": batches, "place": place, "session": session}


def cost(server, options, batch):
    """Returns the processor time of the server for one call, in microseconds."""
    keys = ",".join(f"user:{n * (ENTRIES // batch) + 1}" for n in range(batch))
    script = ONE.format(entries=ENTRIES) if batch == 1 else MANY
    words = ["-M", "prepared", "-c", CLIENTS, "-j", 1, "-D", f"keys={{{keys}}}"]
    if batch > 1:
        found = server.number(f"SELECT count(value) FROM cache_get_many('{{{keys}}}', 'c')")
        insist(found == batch, f"{found} of {batch} keys are there")
    return rate_and_cost(server.pid, lambda: pgbench_rate(server, script, int(options.seconds), *words))[1]


def placing(server, options):
    """Returns the microseconds that one call of node_of adds to a query."""

    def timed(call):
        began = time.monotonic()
        server.sql(PLACE.format(call=call, keys=options.keys))
        return time.monotonic() - began

    with_it, without = timed("pgcache.node_of('c', key, 1024)"), timed("length(key)")
    return max(with_it - without, 0) / options.keys * 1e6


def memory_of_a_session(server, sessions):
    """Returns the megabytes of a session that has read an entry and waits."""
    before = pss_mb(server.pid)
    words = list(map(str, [server.bin / "psql", "-X", "-q", "-A", "-t", *server.connection, DATABASE]))
    idle = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(sessions)]
    for one in idle:
        one.stdin.write("SELECT length(cache_get('user:1', 'c'));\n")
        one.stdin.flush()
        insist(one.stdout.readline().strip() == "37", "a session has read nothing")
    after = pss_mb(server.pid)
    for one in idle:
        one.stdin.close()
        one.wait()
        one.stdout.close()
    return (after - before) / sessions


def fullest(server, options):
    """Returns the ratio by which the fullest server exceeds its share. The ratio is the same in each run."""
    columns = ", ".join(f"pgcache.node_of('c', 'user:' || n, {parts}) AS p{parts}" for parts in PARTS)
    placed = f"CREATE TEMP TABLE placed AS SELECT {columns} FROM generate_series(1, {options.keys}) AS n"
    asked = [FULLEST.format(servers=servers, parts=parts, keys=options.keys) for parts in PARTS for servers in SERVERS]
    found = list(map(float, server.sql(placed, *asked).split()))
    return {str(parts): dict(zip(map(str, SERVERS), found[at * len(SERVERS) :])) for at, parts in enumerate(PARTS)}


def servers_asked(keys, servers):
    """Returns the average number of servers that have at least one of the keys."""
    return servers * (1 - (1 - 1 / servers) ** keys)


def call_and_key(costs):
    """Returns the fixed cost of a call, and the cost of one key in it, from the line through the batches of 10 and 100
    keys."""
    key = (costs[100] - costs[10]) / 90
    return costs[10] - 10 * key, key


def render(summary, facts):
    costs = {int(batch): cost[0] for batch, cost in summary["batches"].items()}
    call, key = call_and_key(costs)
    batches = [(f"{batch:,}", "{:.1f} ({:.1f} to {:.1f})".format(*cost), f"{cost[0] / int(batch):.2f}") for batch, cost in summary["batches"].items()]
    even = [(f"{servers:,}", *(f"{summary['fullest'][str(parts)][str(servers)]:.2f}" for parts in PARTS)) for servers in SERVERS]
    cut = []
    for servers in SERVERS:
        asked = servers_asked(100, servers)
        cut.append((f"{servers:,}", f"{asked:.1f}", f"{100 / asked:.1f}", f"{asked * call + 100 * key:.0f}"))
    return f"""# What it costs to spread keys over several servers

{facts['version']}; {ground(facts['machine'])}; load when the run began: {facts['machine']['load_at_start']:.1f}. {CLIENTS} clients on a unix
socket, prepared statements, a memory cache of {ENTRIES:,} entries with values of 37 bytes; {summary['runs']} repetitions, median (least to most).

## A call with many keys

Processor time of the server. One key is `cache_get`, more are `cache_get_many`, the same keys in each call.

{markdown(("keys", "µs a call", "µs a key"), batches)}

By 10 and 100 keys: {call:.1f} µs a call, and {key:.2f} µs a key in it.

## A batch of 100 keys over several servers

Computed: the servers that have at least one of the keys, where each key is on any of them alike; and the processor time of all
servers together, by the line above.

{markdown(("servers", "servers asked", "keys for each", "µs of all servers"), cut)}

## How even it is

{summary['keys']:,} keys, `user:1` and so on, by `pgcache.node_of`; part *p* is on server *p* modulo their number. The fullest server over
the mean. These figures are the same in each run.

{markdown(("servers", *(f"{parts:,} parts" for parts in PARTS)), even)}

## What else

One call of `pgcache.node_of` takes {summary['place'][0]:.2f} µs ({summary['place'][1]:.2f} to {summary['place'][2]:.2f}). A session that has read
an entry and waits takes {summary['session'][0]:.1f} MB ({summary['session'][1]:.1f} to {summary['session'][2]:.1f}) of memory of its own."""
