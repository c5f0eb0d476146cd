"""Measures the cold start of an application with a cache in its own memory, which CLIENT TRACKING keeps up to date.

Uses the shops of `stampede` with the client rueidis. Its client-side cache answers repeated reads, CLIENT TRACKING
reports changes, and leases ensure that only one caller refreshes a value. A second run also changes rows.
"""

import json

from .base import ROOT, Journal, ground, insist, named, output, say
from .servers import DATABASE, Postgres, Setup, wait_for_resp
from .stampede import SCENARIOS, SETUP, broken, rates
from .stats import summarise
from .tables import markdown

SIZES = {
    "full": {"seconds": 10, "repeats": 5, "writes": "0,100"},
    "quick": {"seconds": 4, "repeats": 1, "writes": "0,100"},
    "smoke": {"seconds": 2, "repeats": 1, "writes": "0,100", "scenarios": "cloud,constrained"},
}
PROGRAM = ROOT / "build/bench-application"
CACHE = "public.products"
FIELDS = ("requests_s", "queries_s", "hit_rate", "attainable", "amplification", "stale", "p50_us", "p99_us", "behind_ms", "errors",
          "wrong")  # fmt: skip
# The longest time in which a change may reach the application; if it takes longer, the run fails. It usually takes a
# few milliseconds, and sometimes a hundred on a machine with two cores on which all visitors are active.
BEHIND_MS = 2_000
# The source that the cache depends on; a product is loaded from its row.
SHELF = """
DROP TABLE IF EXISTS shelf;
CREATE TABLE shelf (id int PRIMARY KEY, version int NOT NULL DEFAULT 0);
INSERT INTO shelf (id) SELECT generate_series(1, 10000);
SELECT cache_depend('shelf', '''p:'' || id', 'products');
"""


def add_options(parser):
    parser.add_argument("--scenarios", help="comma separated (all)")
    parser.add_argument("--writes", help="changes of source rows a second, comma separated")


def run(options):
    journal = Journal(options.out, ("scenario", "writes", "repetition"))
    todo = [(scenario, int(writes), repetition) for scenario in named(SCENARIOS, options.scenarios)
            for writes in options.writes.split(",") for repetition in range(options.repeats)
            if not journal.has(scenario.name, int(writes), repetition)]  # fmt: skip
    if todo:
        build()
        served = {"socket": "resp.sock", "database": DATABASE, "caches": CACHE, "default_role": "postgres"}
        conf = tuple(f"pgcache.resp_{name} = '{value}'" for name, value in served.items())
        with Postgres(Setup(options.out, clients=90, tier_mb=64, conf=conf)) as server:
            journal.facts["version"] = server.version()
            wait_for_resp(socket(server))
            for scenario, writes, repetition in todo:
                row = measure(server, scenario, writes, options.seconds)
                insist(not failures(row), "; ".join(failures(row)))
                journal.add({"repetition": repetition, **row})
                say(f"{scenario.name}, {writes} changes/s: {row['requests_s']:,.0f} requests/s")
    summary = summarise(journal.rows, ("scenario", "writes"), FIELDS, of="requests_s")
    journal.report(summary, render(summary, options, journal.facts))


def build():
    output(["go", "build", "-C", ROOT / "bench/application", "-mod=readonly", "-buildvcs=false", "-o", PROGRAM, "."])


def socket(server):
    return f"{server.folder}/data/resp.sock"


def measure(server, scenario, writes, seconds):
    # An entry whose row changed is removed at once; an entry that has only expired may be served while one caller
    # refreshes it.
    server.sql(SETUP.format(**vars(scenario), grace="1 minute"), *([SHELF] if writes else []))
    words = {
        "resp": socket(server),
        "postgres": f"host={server.folder} port={server.env['PGPORT']} user=postgres dbname={DATABASE} pool_max_conns=16",
        "clients": scenario.clients,
        "seconds": seconds,
        "pool": scenario.pool,
        "latency-ms": scenario.latency_ms,
        "writes": writes,
    }
    row = json.loads(output([PROGRAM, *(f"-{name}={value}" for name, value in words.items())]))
    return {"scenario": scenario.name, "writes": writes, **row, **rates(scenario, row)}


def failures(row):
    """Returns the failures of a run: violations of conditions that hold on every machine."""
    name = f"{row['scenario']}, {row['writes']} changes/s"
    found = broken(name, row)
    if row["behind_ms"] > BEHIND_MS:
        found.append(f"{name}: a value was given {row['behind_ms']:.0f} ms after its change was acknowledged")
    return found


HEAD = ("scenario", "changes/s", "requests/s", "hit rate", "attainable", "queries/s", "amplification", "published", "p50 us", "p99 us",
        "last told after, ms", "errors", "wrong")  # fmt: skip


def render(summary, options, facts):
    published = {scenario.name: scenario.published[2] for scenario in SCENARIOS}
    lines = [cells(row, published[row["scenario"]]) for row in summary]
    return f"""# Cold start in the application

{ground(facts['machine'])}; {facts.get('version', 'Postgres')}; {options.seconds:g} s from an empty cache, medians of {summary[0]['runs']}. Client and server share the
machine.

{markdown(HEAD, lines)}"""


def cells(row, published):
    return (row["scenario"], f"{row['writes']}", f"{row['requests_s']:,.0f}", f"{row['hit_rate']:.3%}", f"{row['attainable']:.3%}",
            f"{row['queries_s']:,.0f}", f"{row['amplification']:,.0f}x", f"{published}x", f"{row['p50_us']:.2f}", f"{row['p99_us']:,.0f}",
            f"{row['behind_ms']:,.1f}" if row["writes"] else "", f"{row['errors']:g}", f"{row['wrong']:g}")  # fmt: skip
