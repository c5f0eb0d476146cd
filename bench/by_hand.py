"""Runs the scripts of bench/pgbench as a reader would: each alone, then run.sh with all of them.

Compares each run with the server's counts of reads, hits, new entries and overwritten entries. The entries contain a
different value from the one that the scripts store, so that an overwrite is visible.
"""

import os
import re

from . import key_distribution as kd, scripts
from .base import Journal, ground, insist, output, say
from .check import near, tier_for
from .servers import DATABASE, Postgres, Setup
from .systems import MEMORY
from .tables import markdown

SIZES = {
    "full": {"scale": 1.0, "seconds": 5, "transactions": 2_000},
    "quick": {"scale": 0.1, "seconds": 1, "transactions": 1_000},
    "smoke": {"scale": 0.02, "seconds": 1, "transactions": 500},
}
CLIENTS = 8
CACHES = 3  # caches of setup.sql that use the hot tier
FEW = 5  # transactions of the run that shows that a script needs no option
PAST_THE_TIER = ("get_table", "mixed_cache")
WRITES = {"set": 1, "upsert": 1, "mixed": kd.WRITE_SHARE}  # by the first word of a name: the share of its writes
OLD = f"key < '{kd.PREFIX}2'"  # the entries of the setup
ROWS = 7  # rows of run.sh's table
COUNTS = ("script", "transactions", "reads", "hits", "hot_hits", "entries", "overwritten")


def add_options(parser):
    parser.add_argument("--scale", type=float, help="1 is 1,000,000 entries (1)")
    parser.set_defaults(transactions=None)


def run(options):
    entries = round(options.scale * scripts.UNIT)
    journal = Journal(options.out, ("script",))
    setup = Setup(options.out, entries, clients=CLIENTS, tier_mb=CACHES * tier_for(entries, 37))
    with Postgres(setup, MEMORY) as server:
        set_up(server, options.scale)
        for name in scripts.names():
            by_hand(server, name, ["-t", FEW])
            if not journal.has(name):
                journal.add({"script": name, **judged(name, measure(server, name, options))})
                say(", ".join(f"{what} {count}" for what, count in zip(COUNTS, cells(journal.rows[-1])) if count != ""))
        table = rounds(server, options)
    insist(len(table.splitlines()) > ROWS, f"run.sh printed\n{table}")
    print(table)
    journal.report(journal.rows, render(journal, options, table))


def cells(row):
    return [row.get(name, "") for name in COUNTS]


def render(journal, options, table):
    return f"""# The rounds by hand

{ground(journal.facts["machine"])}. Counts of the server for each script, {CLIENTS} clients:

{markdown(COUNTS, map(cells, journal.rows))}

`bench/pgbench/run.sh {options.scale:g} {options.seconds:g} {CLIENTS}`:

```text
{table}```"""


def set_up(server, scale):
    other = kd.value(37)[::-1]
    words = ["-X", "-q", "-v", f"scale={scale:g}", "-v", f"value={other}", "-f", scripts.SETUP]
    output([server.bin / "psql", *words, *server.connection, DATABASE])


def by_hand(server, name, length, *more):
    words = [server.bin / "pgbench", "-n", "-M", "prepared", "-f", scripts.FOLDER / f"{name}.sql", *length, *more]
    stdout = output([*words, *server.connection, DATABASE])
    insist("number of failed transactions: 0" in stdout, f"{name}: {stdout[-400:]}")


def table_of(name):
    """Names the table or cache that a script uses."""
    found = re.search(r"bench\.\w+", scripts.statements(name)[0])
    return found and found.group()


def is_plain(table):
    return table.startswith("bench.plain")


def measure(server, name, options):
    """Returns the growth of each of the server's counts in a run of one script."""
    table = table_of(name)
    before = counted(server, table)
    by_hand(server, name, ["-t", options.transactions], "-c", CLIENTS, "-D", f"scale={options.scale:g}")
    grown = {what: now - before[what] for what, now in counted(server, table).items()}
    return {"transactions": CLIENTS * options.transactions, **grown}


def counted(server, table):
    if table is None:
        return {}
    if is_plain(table):
        reads = f"SELECT coalesce(idx_scan, 0), coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relid = '{table}'::regclass"
    else:
        reads = f"SELECT hot_hits + table_hits + misses, hot_hits + table_hits, hot_hits FROM pgcache.stats WHERE cache = '{table}'::regclass"
    rows = f"SELECT count(*), count(*) FILTER (WHERE {OLD} AND value = '{kd.value(37)}') FROM {table}"
    found = [int(number) for line in server.sql(rows, reads).splitlines() for number in line.split("|")]
    return dict(zip(("entries", "overwritten", "reads", "hits", "hot_hits"), found))


def wanted(name):
    """Returns the expected share of the transactions for each count, derived from the name of the script."""
    table = table_of(name)
    if table is None:
        return {}
    writes = WRITES.get(name.partition("_")[0], 0)
    shares = {"entries": writes * kd.NEW_SHARE, "overwritten": writes * (1 - kd.NEW_SHARE)}
    hits = 0 if name == "get_miss" else (1 - writes) * kd.HIT_RATE
    if not is_plain(table):
        return shares | {"reads": 1 - writes, "hits": hits, "hot_hits": 0 if name in PAST_THE_TIER else hits}
    # Postgres reads the index for a write as well, so the reads of a mix cannot be distinguished.
    return shares if writes else shares | {"reads": 1, "hits": hits}


def judged(name, row):
    """Checks that each share is as expected, within the limits of chance."""
    for what, share in wanted(name).items():
        found, asked = row[what], row["transactions"]
        right = found == share * asked if share in (0, 1) else near(found / asked, share, asked)
        insist(right, f"{name}: {what} are {found / asked:.1%} of the transactions, not {share:.1%}")
    return row


def rounds(server, options):
    """Returns the table of run.sh."""
    words = [scripts.FOLDER / "run.sh", f"{options.scale:g}", f"{options.seconds:g}", CLIENTS]
    path = f"{server.bin}:{os.environ['PATH']}"
    return output(words, env={**os.environ, **server.env, "PGDATABASE": DATABASE, "PATH": path})
