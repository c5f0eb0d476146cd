"""Measures the cost of cache_depend for an UPDATE of 100,000 rows, compared with no trigger and with a trigger that
does nothing.

Runs the same statement in turn over tables that differ only in their triggers. Each table is created and vacuumed just
before its statement, and ratios are formed within a repetition. In addition to the client's waiting time it reports the
processor time of the backend, which other programs on the machine affect less.
"""

import os
import random
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .base import Journal, ground, insist, output, say
from .servers import DATABASE, Postgres, Setup
from .stats import middle
from .tables import markdown

SIZES = {
    "full": {"rows": 100_000, "repeats": 11},
    "quick": {"rows": 100_000, "repeats": 5},
    "smoke": {"rows": 1_000, "repeats": 1},
}
SOURCE = """DROP TABLE IF EXISTS source;
CREATE TABLE source (id bigint PRIMARY KEY, name text, description text, category text, updated_at timestamptz);
INSERT INTO source SELECT n, 'Product number ' || n, repeat(md5(n::text), 4), 'category ' || n % 100, now()
FROM generate_series(1, {rows}) AS n"""
UPDATE = "UPDATE source SET name = name || '.', updated_at = now()"
DEPEND = "SELECT cache_depend('source', $$'product:' || id$$, 'cache')"
FILL = "SELECT count(cache_set('{prefix}:' || n, repeat('v', 37), cache => 'cache')) FROM generate_series(1, {rows}) AS n"
QUIET = ("autovacuum = off", "checkpoint_timeout = 1h", "max_wal_size = 8GB")
TRIGGER = """/* A row trigger that does nothing: what any AFTER ROW trigger costs. */
#include "postgres.h"
#include "fmgr.h"
PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(nothing);
Datum nothing(PG_FUNCTION_ARGS) { return PointerGetDatum(NULL); }
"""


@dataclass(frozen=True)
class Case:
    name: str
    trigger: str = ""
    storage: str = "unlogged"
    prefix: str = "other"  # prefix of the entries' keys; there are as many entries as source rows
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


def add_options(parser):
    parser.add_argument("--rows", type=int)


def run(options):
    journal = Journal(options.out, ("repetition",))
    with Postgres(Setup(options.out, tier_mb=256, conf=QUIET)) as server:
        prepare(server, options)
        journal.facts["version"] = server.version()
        for repetition in range(options.repeats):
            if not journal.has(repetition):
                journal.add({"repetition": repetition, "cases": measure(server, options)})
    runs = [row["cases"] for row in journal.rows]
    summary = {"rows": options.rows, "runs": len(runs), "cases": {case.name: figures(runs, case.name) for case in CASES}}
    journal.report(summary, render(summary, journal.facts))


def prepare(server, options):
    library = options.out / "nothing.so"
    headers = output([os.environ.get("PG_CONFIG", "pg_config"), "--includedir-server"]).strip()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    output([*compiler, "-O2", "-fPIC", "-shared", f"-I{headers}", "-x", "c", "-", "-o", library], input=TRIGGER)
    # The server's user may not be able to read the folder of the results.
    seen = Path(server.folder, library.name)
    seen.write_bytes(library.read_bytes())
    seen.chmod(0o755)
    library.unlink()
    server.sql("CREATE EXTENSION pgcache", "CREATE ROLE writer")
    server.sql(f"CREATE FUNCTION nothing() RETURNS trigger LANGUAGE c AS '{seen}'")


def measure(server, options):
    """Runs the cases in random order. Returns the elapsed and the backend's processor time of each, in milliseconds."""
    row = {}
    for case in random.sample(CASES, len(CASES)):
        make(server, options, case)
        row[case.name] = timed(server, case)
        # The dependent entries are removed, all others remain.
        left, expected = server.number("SELECT count(*) FROM cache"), 0 if case.prefix == "product" else options.rows
        insist(left == expected, f"{case.name}: {left} entries are left, not {expected}")
        server.sql("SELECT cache_drop('cache')")
    say(", ".join(f"{name} {at[0]:.0f} ms" for name, at in row.items()))
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
    """Returns Postgres' own measurement of a statement and its commit."""
    words = [server.bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *server.connection, DATABASE]
    session = ("SET client_min_messages = log", "SET log_statement_stats = on", f"SET ROLE {case.writer}", UPDATE)
    words += [part for text in session for part in ("-c", text)]
    told = subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    user, system, elapsed = re.findall(r"!\s+([\d.]+) s user, ([\d.]+) s system, ([\d.]+) s elapsed", told)[-1]
    return [float(elapsed) * 1000, (float(user) + float(system)) * 1000]


def figures(runs, name):
    """Returns elapsed and processor time: the median of the milliseconds, and the ratio to the case without a trigger
    (median, least, most)."""
    return {kind: [middle([run[name][at] for run in runs])[0], *middle([run[name][at] / run[BESIDE][at] for run in runs])]
            for at, kind in enumerate(("elapsed", "processor"))}  # fmt: skip


def render(summary, facts):
    lines = [
        (name, *(cell for ms, *ratio in found.values() for cell in (f"{ms:.0f}", "{:.2f} ({:.2f} to {:.2f})".format(*ratio))))
        for name, found in summary["cases"].items()
    ]
    return f"""# What a dependency costs

{facts['version']}; {ground(facts['machine'])}. UPDATE of {summary['rows']:,} rows with its commit; a cache of as many entries; {summary['runs']} repetitions.
Ratios to "{BESIDE}" are formed within a repetition: median (least to most).

{markdown(("", "elapsed, ms", "over none", "processor time, ms", "over none"), lines)}"""
