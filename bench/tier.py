"""Measures the hot tier against the alternatives, as ratios: one server of each kind, one run, medians.

pgbench runs every statement prepared, with 32 clients over a unix socket. Each repetition takes all statements in turn,
and a ratio is formed within a repetition. All keys exist, the tier has a copy of each entry before the measurement, and
reads use different caches from writes.
"""

import json
import lzma

from . import cores, key_distribution as kd, scripts
from .base import ROOT, Journal, driver_words, ground, insist, output, say
from .processes import rate_and_cost
from .servers import CLIENTS, DATABASE, Postgres, Redis, Setup
from .stats import middle, spread
from .systems import MEMORY, SYSTEMS
from .tables import markdown
from .tools import number

SIZES = {
    "full": {"seconds": 6, "entries": 1_000_000, "repeats": 5},
    "quick": {"seconds": 1, "entries": 1_000_000, "repeats": 5},
    "smoke": {"seconds": 1, "entries": 2_000, "repeats": 1},
}
LATENCIES = ',"latency":'  # begins the driver's histogram, which no figure here uses
# Keys are numbers as long as those of redis-benchmark (key:000000000001), so that a statement consists only of the
# function and its parameter.
FIRST = 1_000_000_000_000_000

SETUP = """SELECT cache_create('hot'); SELECT cache_create('written'); SELECT cache_create('memory', storage => 'memory');
CREATE UNLOGGED TABLE plain (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
INSERT INTO plain SELECT {first} + n, '{value}' FROM generate_series(1, {entries}) AS n;
INSERT INTO hot SELECT * FROM plain; INSERT INTO written SELECT * FROM plain;
SELECT count(cache_set(key, value, NULL, 'memory')) FROM plain;
SELECT count(cache_get(key, 'hot')) FROM plain;
CREATE TABLE keys AS SELECT key AS k FROM plain ORDER BY hashtext(key) LIMIT {some};
VACUUM (ANALYZE) plain, hot, written; CHECKPOINT"""

# A script of bench/pgbench, and the table or cache on which it runs here.
ASKED = {
    "select 1": ("select_1", ""),
    "select by key": ("select_by_key", "plain"),
    "get hot": ("get_hot", "hot"),
    "get memory": ("get_memory", "memory"),
    "get, tier off": ("get_table", "hot"),
    "upsert": ("upsert", "plain"),
    "set unlogged": ("set_unlogged", "written"),
    "set memory": ("set_memory", "memory"),
}
STATEMENTS = {name: scripts.statement(script, ":n", ":value", table) for name, (script, table) in ASKED.items()}

# The measured statement, the statement that it is compared with, and the ratio that it must and should reach.
RATIOS = (
    ("get hot", "select 1", 0.85, 0.92),
    ("get hot", "select by key", 1.4, 1.6),
    ("get hot", "redis GET", 1.0, 1.2),
    ("get memory", "redis GET", None, None),
    ("set memory", "redis SET", 1.0, 1.2),
    ("mixed memory", "redis mixed", 1.0, 1.2),
    ("set unlogged", "upsert", 0.97, 1.1),
    ("get, tier off", "select by key", 0.95, 1.0),
)

# Statements that are measured again with the servers on one core and the clients on another, because the way in which
# the scheduler places ten processes on a few cores is not a property of a server.
PINNED = ("select 1", "select by key", "get hot", "get memory", "set memory")
PINNED_RATIOS = [ratio for ratio in RATIOS if ratio[0] in PINNED and ratio[2]]
INSIDE = ("length(k)", "cache_get(k, 'hot')", "cache_get(k, 'memory')")  # nanoseconds inside a running query
INSIDE_ROWS = 100_000


def add_options(parser):
    parser.add_argument("--entries", type=int)
    parser.add_argument("--tier", type=int, default=640, help="megabytes: three caches of a million entries, and the index")


def run(options):
    options.seconds = round(options.seconds)
    setup = Setup(options.out, options.entries, clients=CLIENTS, tier_mb=options.tier)
    journal = Journal(options.out, ("repetition",))
    with Redis(setup, SYSTEMS[0]) as redis, Postgres(setup, MEMORY) as postgres:
        prepare(postgres, redis, options)
        journal.facts["versions"] = [postgres.version(), redis.version()]
        for repetition in range(options.repeats):
            if not journal.has(repetition):
                journal.add({"repetition": repetition, **measure(postgres, redis, options)})
                say(f"repetition {repetition + 1} of {options.repeats}")
    summary = summarise(journal, options)
    if options.size == "smoke":
        insist(all(row["median"] > 0 for row in summary["ratios"]), "a ratio is zero")
    journal.report(summary, render(summary))


def prepare(postgres, redis, options):
    value, entries = kd.value(37), options.entries
    postgres.load()  # with UUIDs as keys, for the mixed workload
    setup = SETUP.format(value=value, entries=entries, first=FIRST, some=min(entries, INSIDE_ROWS))
    for statement in setup.split(";"):
        postgres.sql(statement)
    redis_benchmark(redis, options, "set", 1, entries * 3)
    redis.load()


def measure(postgres, redis, options):
    """Returns the rate of each statement. For every system, the better of one and two client threads counts."""
    tried = (1,) if options.size == "smoke" else (1, 2)
    row = {}
    for name in STATEMENTS:
        row |= best(postgres, name, [lambda threads=threads: pgbench(postgres, options, name, threads) for threads in tried])
    for command in ("get", "set"):
        requests = 100_000 * options.seconds
        calls = [lambda threads=threads: redis_benchmark(redis, options, command, threads, requests) for threads in tried]
        row |= best(redis, f"redis {command.upper()}", calls)
    # Neither server has a tool that mixes reads and writes of old and new keys, so one driver measures both.
    for name, server in (("mixed memory", postgres), ("redis mixed", redis)):
        row |= best(server, name, [lambda threads=threads: mixed(server.to_driver, options, threads) for threads in tried])
    for expression in INSIDE:
        row[f"ns {expression}"] = inside(postgres, options, expression)
    return row | (measure_pinned(postgres, redis, options) if cores.are_two() else {})


def best(server, name, calls):
    """Returns the highest rate, and the processor time that the server used for a request at that rate, in
    microseconds."""
    return dict(zip((name, f"cpu {name}"), max(rate_and_cost(server.pid, call) for call in calls)))


def measure_pinned(postgres, redis, options):
    with cores.one_core_for([postgres.pid, redis.pid]):
        row = {name: pgbench(postgres, options, name, 1) for name in PINNED}
        for command in ("get", "set"):
            row[f"redis {command.upper()}"] = redis_benchmark(redis, options, command, 1, 100_000 * options.seconds)
    return {f"pinned {name}": tps for name, tps in row.items()}


def pgbench(postgres, options, name, threads):
    sql = STATEMENTS[name]
    draw = f"\\set n {FIRST} + random(1, {options.entries})\n" if ":n" in sql else ""
    words = ["env", "PGOPTIONS=-c pgcache.hot_tier=off"] if "tier off" in name else []
    words += [postgres.bin / "pgbench", *postgres.connection, "-n", "-M", "prepared", "-c", CLIENTS, "-j", threads]
    words += ["-T", options.seconds, "-D", f"value={kd.value(37)}", "-f", "-", DATABASE]
    return number(r"tps = ([\d.]+)", kept(options, words, f"{draw}{sql};\n"))


def redis_benchmark(redis, options, command, threads, requests):
    words = ["redis-benchmark", "-s", redis.socket, "-c", CLIENTS, "-n", requests, "-r", options.entries, "--csv"]
    words += ["--threads", threads] if threads > 1 else []
    stdout = kept(options, [*words, "-t", command, "-d", 37])
    return float(stdout.strip().splitlines()[-1].split(",")[1].strip('"'))


def mixed(where, options, threads):
    load = {"workload": "mixed", "clients": CLIENTS, "threads": threads, "value": kd.value(37)}
    words = driver_words("requests", {**load, "entries": options.entries, "seconds": options.seconds, **where})
    return json.loads(kept(options, words))["tps"]


def kept(options, words, script=None):
    """Keeps a tool's output beside the command that produced it, so that every figure can be traced."""
    stdout = output(words, input=script)
    printed = stdout.partition(LATENCIES)[0]
    said = f"$ {' '.join(map(str, words))}\n{script or ''}{printed}\n"
    with lzma.open(options.out / "raw.log.xz", "at", encoding="utf-8") as log:
        log.write(said.replace(f"{ROOT}/", ""))  # without the folder of the checkout, which is private
    return stdout


def inside(postgres, options, expression):
    """Returns the server time for a row in nanoseconds, over keys in random order. The session has touched the pages
    before, because the first query of a new session also pays for page faults."""
    query = f"SELECT count({expression}) FROM keys"
    timed = postgres.sql(query, f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")
    return json.loads(timed[timed.index("[") :])[0]["Execution Time"] * 1e6 / min(options.entries, INSIDE_ROWS)


def summarise(journal, options):
    rows = journal.rows
    ratios = [ratio_row(rows, *ratio) for ratio in RATIOS]
    if f"pinned {PINNED[0]}" in rows[0]:
        ratios += [ratio_row(rows, *ratio, "pinned ") for ratio in PINNED_RATIOS]
    for expression in INSIDE[1:]:
        what = f"a hit inside a query, {expression} over length(k), ns"
        found = [row[f"ns {expression}"] - row["ns length(k)"] for row in rows]
        ratios.append({"what": what, "must": 400, "aim": 250, **spread(found), "tps": None, "cpu_us": None})
    sizes = {"entries": options.entries, "seconds": options.seconds, "tier_mb": options.tier, "clients": CLIENTS}
    return {**journal.facts, **sizes, "runs": len(rows), "ratios": ratios}


def ratio_row(rows, name, beside, must, aim, way=""):
    found = [row[way + name] / row[way + beside] for row in rows]
    tps = middle([row[way + name] for row in rows])[0]
    spent = [row[f"cpu {name}"] for row in rows if not way]
    cpu = {"cpu_us": middle(spent)[0] if spent else None}
    return {"what": f"{way}{name} over {beside}", "must": must, "aim": aim, **spread(found), "tps": tps, **cpu}


def render(summary):
    def text(number):
        return "" if number is None else f"{number:.{0 if abs(number) > 50 else 2}f}"

    lines = [
        (row["what"], row["must"] or "", row["aim"] or "", text(row["median"]), f"{text(row['least'])} to {text(row['most'])}",
         "" if row["tps"] is None else f"{row['tps']:,.0f}", text(row["cpu_us"]))
        for row in summary["ratios"]
    ]  # fmt: skip
    return f"""# The hot tier beside what it is measured against

{', '.join(summary['versions'])}; {ground(summary['machine'])}; {summary['entries']:,} keys, 37-byte values, hot_size {summary['tier_mb']} MB,
{summary['clients']} clients, unix socket, prepared; {summary['runs']} repetitions of {summary['seconds']} s. A ratio is formed within a repetition.

{markdown(('what', 'must', 'aim', 'median', 'spread', 'tps', 'CPU µs'), lines)}

`CPU µs`: processor time of the server for a request of what stands first, connecting included."""
