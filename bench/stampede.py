"""Measures a cold start with a stampede: four shops whose cache is empty at first, in front of a slow database."""

from dataclasses import dataclass

from .base import Journal, drive, ground, insist, named, say
from .servers import Postgres, Setup
from .stats import summarise
from .tables import markdown

SIZES = {
    "full": {"seconds": 10, "repeats": 3},
    "quick": {"seconds": 3, "repeats": 1},
    "smoke": {"seconds": 2, "repeats": 1, "scenarios": "cloud,constrained"},
}
MODES = ("lease", "fetch", "none")
# The share of the requests, the number of products that receive it, and whether these products are absent; as in
# driver/src/visitors.rs.
GROUPS = ((0.80, 50, False), (0.15, 450, False), (0.04, 4_500, False), (0.01, 1_000, True))
FIELDS = ("requests_s", "queries_s", "capacity_s", "hit_rate", "attainable", "amplification", "stale", "p50_us", "p95_us", "p99_us",
          "errors", "wrong")  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    name: str
    pool: int
    latency_ms: int
    ttl: float
    absent_ttl: float
    clients: int
    published: tuple  # hit rate, queries/s, amplification

    @property
    def capacity(self):
        """Returns the queries a second that the pool can answer."""
        return self.pool / (self.latency_ms / 1000)

    @property
    def published_requests(self):
        """Returns the requests a second that the published figures imply."""
        return self.published[2] * self.capacity


SCENARIOS = (
    Scenario("fast", 100, 90, 1, 0.5, 600, (0.9981, 982, 514)),
    Scenario("cloud", 20, 85, 5, 3, 100, (0.9961, 214, 235)),
    Scenario("shared", 13, 125, 10, 5, 100, (0.9859, 103, 70)),
    Scenario("constrained", 8, 190, 20, 10, 100, (0.9401, 42, 17)),
)


def queries_wanted(scenario, requests, seconds):
    """Returns the queries a second of an ideal cache, which loads a key only when it is requested and not fresh, and
    never twice at once.

    A key that is requested at random times, `rate` times a second, is loaded once, and then each time that the first
    request after its ttl arrives: every ttl + 1 / rate seconds.
    """
    total = 0.0
    for share, keys, absent in GROUPS:
        rate = requests * share / keys
        ttl = scenario.absent_ttl if absent else scenario.ttl
        total += keys * min(rate * seconds, 1 + max(seconds - 1 / rate, 0) / (ttl + 1 / rate))
    return total / seconds


def attainable_hit_rate(scenario, requests, seconds):
    """Returns the hit rate that this traffic allows: the pool never answers more queries than its capacity."""
    return 1 - min(queries_wanted(scenario, requests, seconds), scenario.capacity) / requests


SETUP = """
DROP EXTENSION IF EXISTS pgcache CASCADE;
DROP VIEW IF EXISTS products, counters;
DROP FUNCTION IF EXISTS absent_ttl, load_product;
CREATE EXTENSION pgcache;
SELECT cache_create('products', '{ttl} s', 'memory', grace => '{grace}');
SELECT cache_tune('products', negative_ttl => '{absent_ttl} s');
SELECT cache_create('counters', storage => 'memory');
SELECT cache_set('queries', '0', cache => 'counters');
CREATE FUNCTION absent_ttl() RETURNS interval LANGUAGE sql IMMUTABLE AS $$SELECT interval '{absent_ttl} s'$$;
-- The database behind cache_fetch: a pool of {pool} connections, taken in turn, each busy for {latency_ms} ms.
CREATE FUNCTION load_product(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id int := substr(key, 3)::int;
    connection int := cache_incr('queries', cache => 'counters') % {pool};
BEGIN
    PERFORM pg_advisory_lock(connection);
    PERFORM pg_sleep({latency_ms} / 1000.0);
    PERFORM pg_advisory_unlock(connection);
    RETURN CASE WHEN id <= 10000 THEN 'product ' || id END;
END $$;
"""


def add_options(parser):
    parser.add_argument("--scenarios", help="comma separated (all)")
    parser.add_argument("--modes", default=",".join(MODES), help="lease, fetch, none")


def run(options):
    journal = Journal(options.out, ("scenario", "mode", "repetition"))
    chosen = named(SCENARIOS, options.scenarios)
    todo = [(scenario, mode, repetition) for scenario in chosen for mode in options.modes.split(",")
            for repetition in range(options.repeats) if not journal.has(scenario.name, mode, repetition)]  # fmt: skip
    if todo:
        with Postgres(Setup(options.out, clients=680, tier_mb=64)) as server:
            journal.facts["version"] = server.version()
            for scenario, mode, repetition in todo:
                row = measure(server, scenario, mode, options.seconds)
                insist(not failures([row]), "; ".join(failures([row])))
                journal.add({"repetition": repetition, **row})
                say(f"{scenario.name} {mode}: {row['requests_s']:,.0f} requests/s")
    summary = summarise(journal.rows, ("scenario", "mode"), FIELDS, of="requests_s")
    journal.report(summary, render(summary, options, journal.facts))


def measure(server, scenario, mode, seconds):
    server.sql(SETUP.format(**vars(scenario), grace="0" if mode == "none" else "1 minute"))
    pool = {"pool": scenario.pool, "latency_ms": scenario.latency_ms}
    row = drive("visitors", socket=server.socket, mode=mode, clients=scenario.clients, seconds=seconds, **pool)
    if mode == "fetch":
        row["queries"] = server.number("SELECT cache_get('queries', 'counters')")
    return {"scenario": scenario.name, "mode": mode, **row, **rates(scenario, row)}


def rates(scenario, row):
    """Returns the rates that follow from the counts of a run."""
    rate, queries = (row[name] / row["seconds"] for name in ("requests", "queries"))
    return {
        "requests_s": rate,
        "queries_s": queries,
        "capacity_s": scenario.capacity,
        "hit_rate": 1 - queries / rate,
        "attainable": attainable_hit_rate(scenario, rate, row["seconds"]),
        "amplification": rate / scenario.capacity,
    }


def failures(rows):
    """Returns the failures of the runs: violations of conditions that hold on every machine."""
    return [failure for row in rows for failure in broken(f"{row['scenario']}, {row['mode']}", row)]


def broken(name, row):
    """Returns the failures of a run with this name."""
    found = []
    if row["errors"]:
        found.append(f"{name}: {row['errors']} errors, the first: {row['first_error']}")
    if row["wrong"]:
        found.append(f"{name}: {row['wrong']} wrong answers")
    # A query that began before the end counts as a whole. These queries are at most one more round of the pool.
    allowed = row["capacity_s"] * (row["seconds"] + 1)
    if row["queries"] > allowed:
        found.append(f"{name}: {row['queries']} queries, the pool can answer {allowed:.0f}")
    return found


HEAD = ("scenario", "mode", "requests/s", "hit rate", "attainable", "queries/s", "of capacity", "amplification", "p50 us", "p95 us",
        "p99 us", "errors", "wrong")  # fmt: skip


def render(summary, options, facts):
    lines = []
    for scenario in SCENARIOS:
        rows = [row for row in summary if row["scenario"] == scenario.name]
        lines += [cells(row) for row in rows]
        if rows:
            (hit_rate, queries, amplification), traffic = scenario.published, scenario.published_requests
            lines.append((scenario.name, "*published, in process*", f"{traffic:,.0f}", f"{hit_rate:.2%}",
                          f"{attainable_hit_rate(scenario, traffic, 10):.2%}", f"{queries:,.0f}", f"{queries / scenario.capacity:.0%}",
                          f"{amplification}x", "", "", "", "0", ""))  # fmt: skip
    return f"""# Cold start and stampede

{ground(facts['machine'])}; {facts.get('version', 'Postgres')}; {options.seconds:g} s from an empty cache, medians of {summary[0]['runs']}. Client and server share the
machine.

{markdown(HEAD, lines)}"""


def cells(row):
    return (row["scenario"], row["mode"], f"{row['requests_s']:,.0f}", f"{row['hit_rate']:.2%}", f"{row['attainable']:.2%}",
            f"{row['queries_s']:,.0f}", f"{row['queries_s'] / row['capacity_s']:.0%}", f"{row['amplification']:,.1f}x",
            *(f"{row[name]:,.0f}" for name in ("p50_us", "p95_us", "p99_us")), f"{row['errors']:g}", f"{row['wrong']:g}")  # fmt: skip
