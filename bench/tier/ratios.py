"""How fast is the hot tier beside what it is measured against? One server of each, one run, medians.

Every statement is prepared and run by pgbench with 8 clients over a unix socket, each repetition takes all of
them in turn, and a ratio is formed within a repetition. All keys exist; entries are copied to the tier before,
and the caches that are read are not the one that is written.
"""

import argparse
import contextlib
import gzip
import json
import os
import re
import statistics
import time
from dataclasses import replace
from pathlib import Path

from rounds import law, machine, plan as plans, systems
from rounds.command import output
from rounds.postgres_server import DATABASE, PostgresServer
from rounds.redis_server import RedisServer

HERE = Path(__file__).resolve().parent
LATENCIES = ',"latency"'  # of the client: a histogram that no figure here comes from
CLIENTS = 8
# Keys are numbers as long as those of redis-benchmark (key:000000000001), so that a statement is the function
# and its parameter and nothing else.
FIRST = 1_000_000_000_000_000

SETUP = """CREATE EXTENSION pgcache;
SELECT cache_create('hot'); SELECT cache_create('written'); SELECT cache_create('memory', storage => 'memory');
CREATE UNLOGGED TABLE plain (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz);
INSERT INTO plain SELECT {first} + n, '{value}' FROM generate_series(1, {entries}) AS n;
INSERT INTO hot SELECT * FROM plain; INSERT INTO written SELECT * FROM plain;
SELECT count(cache_set(key, value, NULL, 'memory')) FROM plain;
SELECT count(cache_get(key, 'hot')) FROM plain;
SELECT cache_create('mixed', storage => 'memory'); SELECT count(cache_set(key, value, NULL, 'mixed')) FROM ({rounds}) AS entry"""

STATEMENTS = {
    "select 1": "SELECT 1",
    "select by key": "SELECT value FROM plain WHERE key = :n",
    "get hot": "SELECT cache_get(:n, 'hot')",
    "get memory": "SELECT cache_get(:n, 'memory')",
    "get, tier off": "SELECT cache_get(:n, 'hot')",
    "upsert": "INSERT INTO plain (key, value, expires_at) VALUES (:n, :value, NULL) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
    "set unlogged": "SELECT cache_set(:n, :value, NULL, 'written')",
    "set memory": "SELECT cache_set(:n, :value, NULL, 'memory')",
}

# What is measured, over what, must, aim.
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

# Again with the servers on one core and the clients on another: what the operating system's scheduler does to
# ten processes on a few cores is no property of a server.
PINNED = ("select 1", "select by key", "get hot", "get memory", "set memory")
PINNED_RATIOS = (
    ("get hot", "select 1", 0.85, 0.92),
    ("get hot", "select by key", 1.4, 1.6),
    ("get hot", "redis GET", 1.0, 1.2),
    ("set memory", "redis SET", 1.0, 1.2),
)

# A hit inside a running query: nanoseconds over length(k).
INSIDE = ("length(k)", "cache_get(k, 'hot')", "cache_get(k, 'memory')")


def main():
    options = read_options()
    options.out = options.out.resolve()
    plan = replace(plans.from_words([]), entries=options.entries, out=options.out, tier_mb=options.hot_size)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    postgres = PostgresServer(systems.by_names(["pgcache_hot"])[0], plan)
    with RedisServer(systems.by_names(["redis"])[0], plan) as redis, postgres:
        prepare(postgres, redis, options)
        for repetition in range(options.repeats):
            rows.append(measure(postgres, redis, options))
            print(f"{time.strftime('%H:%M:%S')}  repetition {repetition + 1} of {options.repeats}", flush=True)
        versions = [postgres.version(), redis.version()]
    postgres.remove()
    redis.remove()
    write(options, rows, versions)


def read_options():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--quick", action="store_true", help="5 repetitions of 1 s")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--hot-size", type=int, default=640, help="megabytes: three caches of a million entries, and the index")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=plans.ROOT / "build/bench" / time.strftime("tier-%Y%m%d-%H%M%S"))
    options = parser.parse_args()
    options.seconds = options.seconds or (1 if options.quick else 6)
    return options


def prepare(postgres, redis, options):
    value = law.value(37)
    postgres.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
    rounds = law.rows_sql(options.entries, value)
    for statement in SETUP.format(value=value, entries=options.entries, first=FIRST, rounds=rounds).split(";"):
        postgres.sql(statement)
    postgres.sql("VACUUM (ANALYZE) plain, hot, written")
    postgres.sql("CHECKPOINT")
    redis_benchmark(redis, options, "set", 1, options.entries * 3)
    redis.preload()
    for name, text in STATEMENTS.items():
        draw = f"\\set n {FIRST} + random(1, {options.entries})\n"
        script(options, name).write_text(f"{draw if ':n' in text else ''}{text};\n")


def measure(postgres, redis, options):
    """Each as tps; of 1 and 2 threads of a client the better one counts, for every system."""
    row = {name: max(pgbench(postgres, options, name, threads) for threads in (1, 2)) for name in STATEMENTS}
    for command in ("get", "set"):
        runs = (redis_benchmark(redis, options, command, threads, 100_000 * options.seconds) for threads in (1, 2))
        row[f"redis {command.upper()}"] = max(runs)
    for name, words in mixed_clients(postgres, redis).items():
        row[name] = max(client(words, options, threads) for threads in (1, 2))
    for expression in INSIDE:
        row[f"ns {expression}"] = inside(postgres, options, expression)
    if os.cpu_count() > 1:
        row |= measure_pinned(postgres, redis, options)
    return row


def measure_pinned(postgres, redis, options):
    with one_core_for([postgres.pid, redis.pid]):
        row = {name: pgbench(postgres, options, name, 1) for name in PINNED}
        for command in ("get", "set"):
            row[f"redis {command.upper()}"] = redis_benchmark(redis, options, command, 1, 100_000 * options.seconds)
    return {f"pinned {name}": tps for name, tps in row.items()}


@contextlib.contextmanager
def one_core_for(servers):
    """The servers, and backends that they start from now on, on the first core; this process, whose children the
    clients are, on the second."""
    first, second, *_ = cores = sorted(os.sched_getaffinity(0))
    place(servers, [first])
    os.sched_setaffinity(0, [second])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        place(servers, cores)


def place(servers, cores):
    for pid in servers:
        output(["taskset", "--all-tasks", "--cpu-list", "--pid", ",".join(map(str, cores)), pid])


def script(options, name):
    return options.out / f"{name.replace(' ', '_').replace(',', '')}.sql"


def pgbench(postgres, options, name, threads):
    words = [postgres.bin / "pgbench", *postgres.connection, "-n", "-M", "prepared", "-c", CLIENTS, "-j", threads]
    words += ["-T", options.seconds, "-D", f"value={law.value(37)}", "-f", script(options, name), DATABASE]
    off = {"PGOPTIONS": "-c pgcache.hot_tier=off"} if "tier off" in name else {}
    command = ["env", *(f"{key}={setting}" for key, setting in off.items()), *words]
    return float(re.search(r"tps = ([\d.]+)", kept(options, command)).group(1))


def redis_benchmark(redis, options, command, threads, requests):
    words = ["redis-benchmark", "-s", redis.socket, "-c", CLIENTS, "-n", requests, "-r", options.entries, "--csv"]
    words += ["--threads", threads] if threads > 1 else []
    stdout = kept(options, [*words, "-t", command, "-d", 37])
    return float(stdout.strip().splitlines()[-1].split(",")[1].strip('"'))


def mixed_clients(postgres, redis):
    """No tool of either server mixes reads and writes of old and new keys: one client does it for both."""
    sql = ["SELECT cache_get($1, 'mixed')", "SELECT cache_set($1, $2, NULL, 'mixed')"]
    to_postgres = ["--protocol", "postgres", "--database", DATABASE, "--offset", law.PGBENCH_OFFSET]
    return {
        "mixed memory": [*to_postgres, "--read-sql", sql[0], "--write-sql", sql[1], "--socket", postgres.socket],
        "redis mixed": ["--protocol", "redis", "--socket", redis.socket],
    }


def client(words, options, threads):
    head = [plans.CLIENT, "--round", "mixed", "--clients", CLIENTS, "--threads", threads, "--value", law.value(37)]
    return json.loads(kept(options, [*head, "--entries", options.entries, "--seconds", options.seconds, *words]))["tps"]


def kept(options, words):
    """What a tool printed, beside the command that made it: every figure can be traced."""
    stdout = output(words)
    said = f"$ {' '.join(map(str, words))}\n{stdout.partition(LATENCIES)[0]}\n"
    with gzip.open(options.out / "raw.log.gz", "at", encoding="utf-8") as log:
        log.write(said.replace(f"{plans.ROOT}/", ""))  # where the checkout lay is nobody's business
    return stdout


def inside(postgres, options, expression):
    """Server time a row in nanoseconds, over keys in random order. Of a session that has seen the pages: the first
    query of a new one also pays for page faults."""
    postgres.sql("CREATE TABLE IF NOT EXISTS keys AS SELECT key AS k FROM plain ORDER BY hashtext(key) LIMIT 100000")
    query = f"SELECT count({expression}) FROM keys"
    timed = postgres.sql(query, f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")
    return json.loads(timed[timed.index("[") :])[0]["Execution Time"] * 1e6 / 100_000


def write(options, rows, versions):
    ratios = [ratio_row(rows, *ratio) for ratio in RATIOS]
    if f"pinned {PINNED[0]}" in rows[0]:
        ratios += [ratio_row(rows, *ratio, "pinned ") for ratio in PINNED_RATIOS]
    ratios += [nanoseconds_row(rows, expression) for expression in INSIDE[1:]]
    facts = {"machine": machine.describe(), "versions": versions, "entries": options.entries, "clients": CLIENTS,
             "seconds": options.seconds, "rows": rows, "ratios": ratios}
    (options.out / "tier.json").write_text(json.dumps(facts, indent=1))
    report = render(options, facts)
    (options.out / "tier.md").write_text(report)
    print(report)
    print(f"raw results  {options.out / 'tier.json'}")


def ratio_row(rows, name, rival, must, aim, way=""):
    name, rival = way + name, way + rival
    found = [row[name] / row[rival] for row in rows]
    return {"what": f"{name} over {rival.removeprefix(way)}", "must": must, "aim": aim, "median": statistics.median(found),
            "least": min(found), "most": max(found), "tps": statistics.median(row[name] for row in rows)}


def nanoseconds_row(rows, expression):
    found = [row[f"ns {expression}"] - row["ns length(k)"] for row in rows]
    return {"what": f"a hit inside a query, {expression} over length(k), ns", "must": 400, "aim": 250,
            "median": statistics.median(found), "least": min(found), "most": max(found), "tps": None}


def render(options, facts):
    system = facts["machine"]
    lines = [
        "# The hot tier beside its rivals", "",
        f"{', '.join(facts['versions'])}; {system['system']}, Linux {system['kernel']}, {system.get('cores', '?')} cores; "
        f"{options.entries:,} keys, 37-byte values, hot_size {options.hot_size}, {CLIENTS} clients, unix socket, prepared; "
        f"{len(facts['rows'])} repetitions of {options.seconds} s. A ratio is formed within a repetition.", "",
        "| what | must | aim | median | spread | tps |", "|---|---|---|---|---|---|",
    ]
    for row in facts["ratios"]:
        digits = 0 if row["median"] > 50 else 2
        number = lambda x: "" if x is None else f"{x:.{digits}f}"
        tps = "" if row["tps"] is None else f"{row['tps']:,.0f}"
        lines.append(f"| {row['what']} | {row['must'] or ''} | {row['aim'] or ''} | {number(row['median'])} "
                     f"| {number(row['least'])} to {number(row['most'])} | {tps} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
