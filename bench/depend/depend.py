"""What does a dependency cost whoever writes its source? One statement in turn over tables that differ in their
triggers alone, each made anew and vacuumed before; ratios are formed within a repetition.

Beside the time that a client waits stands the processor time of its backend, which other programs on the machine
change less.
"""

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rounds import machine, plan as plans, systems
from rounds.command import output
from rounds.postgres_server import DATABASE, PostgresServer

HERE = Path(__file__).resolve().parent

SOURCE = """DROP TABLE IF EXISTS source;
CREATE TABLE source (id bigint PRIMARY KEY, name text, description text, category text, updated_at timestamptz);
INSERT INTO source SELECT n, 'Product number ' || n, repeat(md5(n::text), 4), 'category ' || n % 100, now()
FROM generate_series(1, {rows}) AS n"""
UPDATE = "UPDATE source SET name = name || '.', updated_at = now()"
DEPEND = "SELECT cache_depend('source', $$'product:' || id$$, 'cache')"
FILL = "SELECT count(cache_set('{prefix}:' || n, repeat('v', 37), cache => 'cache')) FROM generate_series(1, {rows}) AS n"


@dataclass(frozen=True)
class Case:
    name: str
    trigger: str = ""
    storage: str = "unlogged"
    prefix: str = "other"  # of the entries' keys, as many as the source has rows
    writer: str = "postgres"


CASES = (
    Case("no trigger"),
    Case("a trigger that does nothing", "CREATE TRIGGER t AFTER UPDATE ON source FOR EACH ROW EXECUTE FUNCTION nothing()"),
    Case("dependency, no key has an entry", DEPEND),
    Case("the same, written by a role that is not the owner", DEPEND, writer="writer"),
    Case("dependency, every key has an entry", DEPEND, prefix="product"),
    Case("dependency of a memory cache, every key has an entry", DEPEND, "memory", "product"),
)
BESIDE = CASES[0].name


def main():
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    conf = ("autovacuum = off", "checkpoint_timeout = 1h", "max_wal_size = 8GB")
    plan = replace(plans.from_words([]), tier_mb=256, conf=conf)
    server = PostgresServer(systems.by_names(["pgcache_hot"])[0], plan)
    with server:
        prepare(server, options)
        rows = [measure(server, options) for _ in range(options.repeats)]
        facts = {"machine": machine.describe(), "version": server.version(), "rows": options.rows, "runs": rows}
    server.remove()
    (options.out / "depend.json").write_text(json.dumps(facts, indent=1))
    report = render(facts)
    (options.out / "report.md").write_text(report)
    print(report)


def read_options():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--quick", action="store_true", help="5 repetitions")
    parser.add_argument("--smoke", action="store_true", help="1,000 rows, once: that it works")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--out", type=Path, default=plans.ROOT / "build/bench" / time.strftime("depend-%Y%m%d-%H%M%S"))
    options = parser.parse_args()
    options.rows = options.rows or (1_000 if options.smoke else 100_000)
    options.repeats = options.repeats or (1 if options.smoke else 5 if options.quick else 11)
    options.out = options.out.resolve()
    return options


def prepare(server, options):
    server.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
    library = options.out / "floor.so"
    headers = output([os.environ.get("PG_CONFIG", "pg_config"), "--includedir-server"]).strip()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    output([*compiler, "-O2", "-fPIC", "-shared", f"-I{headers}", HERE / "floor.c", "-o", library])
    # The server's user need not be able to read the folder of the results.
    folder = Path(server.env["PGHOST"])
    seen = folder / "floor.so"
    seen.write_bytes(library.read_bytes())
    seen.chmod(0o755)
    server.sql("CREATE EXTENSION pgcache", "CREATE ROLE writer")
    server.sql(f"CREATE FUNCTION nothing() RETURNS trigger LANGUAGE c AS '{seen}'")


def measure(server, options):
    """Milliseconds of each case, in an order of chance: elapsed, and of the backend's processor time."""
    row = {}
    for case in random.sample(CASES, len(CASES)):
        make(server, options, case)
        row[case.name] = timed(server, case)
        check(server, options, case)
        server.sql("SELECT cache_drop('cache')")
    print(f"{time.strftime('%H:%M:%S')}  {', '.join(f'{name} {at[0]:.0f} ms' for name, at in row.items())}", flush=True)
    return row


def make(server, options, case):
    server.sql(*SOURCE.format(rows=options.rows).split(";"))
    server.sql(f"SELECT cache_create('cache', storage => '{case.storage}')")
    if case.trigger:
        server.sql(case.trigger)
    server.sql(FILL.format(prefix=case.prefix, rows=options.rows))
    server.sql("VACUUM (ANALYZE) source", "GRANT SELECT, UPDATE ON source TO writer")
    if case.storage != "memory":
        server.sql("VACUUM (ANALYZE) cache")


def timed(server, case):
    """What Postgres itself measures of a statement and its commit."""
    words = [server.bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *server.connection, DATABASE]
    session = ("SET client_min_messages = log", "SET log_statement_stats = on", f"SET ROLE {case.writer}", UPDATE)
    words += [part for text in session for part in ("-c", text)]
    done = subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    user, system, elapsed = re.findall(r"!\s+([\d.]+) s user, ([\d.]+) s system, ([\d.]+) s elapsed", done.stdout)[-1]
    return [float(elapsed) * 1000, (float(user) + float(system)) * 1000]


def check(server, options, case):
    """What was there and depends is gone, all else is there."""
    left = int(server.sql("SELECT count(*) FROM cache"))
    expected = 0 if case.prefix == "product" else options.rows
    assert left == expected, f"{case.name}: {left} entries are left, not {expected}"


def render(facts):
    system = facts["machine"]
    lines = [
        "# What a dependency costs", "",
        f"{facts['version']}; {system['system']}, Linux {system['kernel']}, {system.get('cores', '?')} cores; "
        f"UPDATE of {facts['rows']:,} rows with its commit; a cache of as many entries; {len(facts['runs'])} repetitions. "
        f"Ratios to \"{BESIDE}\" are formed within a repetition: median (least to most).", "",
        "| | elapsed, ms | over none | processor time, ms | over none |", "|---|---|---|---|---|",
    ]
    for case in CASES:
        cells = [f"{median(facts, case.name, kind):.0f} | {ratio(facts, case.name, kind)}" for kind in (0, 1)]
        lines.append(f"| {case.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def median(facts, name, kind):
    return statistics.median(run[name][kind] for run in facts["runs"])


def ratio(facts, name, kind):
    found = [run[name][kind] / run[BESIDE][kind] for run in facts["runs"]]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    main()
