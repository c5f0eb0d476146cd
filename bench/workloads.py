"""Measures the read, mixed and write workloads on Redis, plain tables and pgcache, side by side.

In each repetition each system starts its server and is loaded in random key order; no other system runs while it is
measured.
"""

import tarfile
from statistics import median

from . import check, headline, stats, tables, workloads_report
from .base import ROOT, Journal, insist, named, say, write_json
from .servers import CLIENTS, Setup, of
from .systems import ALL, SYSTEMS, WORKLOADS
from .tools import Job, measure

# A session maps each page of shared memory at its first access. With 32 sessions this takes ten seconds and hides the
# gain of the hot tier, with 8 sessions it takes one second. With fewer than 300,000 entries a table fits into the
# processor's caches.
SIZES = {
    "full": {"entries": 1_000_000, "clients": CLIENTS, "seconds": 8.0, "repeats": 5, "threads": "1,2"},
    "quick": {"entries": 300_000, "clients": 8, "seconds": 1.0, "repeats": 1, "threads": "1"},
    "smoke": {"entries": 20_000, "clients": 8, "seconds": 0.15, "repeats": 1, "threads": "1"},
}
WARMUP = 0.6  # seconds, the minimum
FIELDS = ("tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu", "client_cpu", "other_cpu", "rss_mb", "hit_rate", "tier_hit_rate", "wal_per_write")
PROMISED = ("tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu", "rss_mb", "runs")

# The tools for each workload. The workloads that write come last, because they enlarge the tables that the other
# workloads read.
BOTH = ("redis-benchmark", "driver")
REDIS = {"baseline": BOTH, "read": BOTH, "mixed": ("driver",), "write": ("driver",)}
REDIS_TOOLS = {**REDIS, "set": BOTH}  # compares the tools; `set` stores the keys that the reads miss
POSTGRES = {name: ("pgbench", "driver") for name in WORKLOADS}
POSTGRES_TOOLS = {"baseline": ("pgbench", "driver"), "baseline_nolog": ("pgbench",), "baseline_key": ("pgbench",), **POSTGRES}
ASIDE = ("set", "baseline_nolog", "baseline_key")  # workloads that a quick run leaves out


def add_options(parser):
    parser.add_argument("--entries", type=int, help="preloaded (1000000; the published run had 30000000)")
    parser.add_argument("--clients", type=int, help=f"connections, one request in flight on each ({CLIENTS}; --quick: 8)")
    parser.add_argument("--value-size", type=int, default=37, help="bytes (37)")
    parser.add_argument("--tcp", action="store_true", help="over TCP on the loopback interface, not a unix socket")
    parser.add_argument("--keys", choices=("uniform", "zipf"), default="uniform", help="zipf: a skew of 0.99, by the driver only")
    parser.add_argument("--tools", default="", help="only these: driver, pgbench, redis-benchmark; leaves the baselines out")
    parser.add_argument("--threads", help="of the clients, comma separated; the best counts (1,2)")
    parser.add_argument("--tier", type=int, help="megabytes of the hot tier (room for all entries)")
    parser.add_argument("--no-charts", action="store_false", dest="charts", help="tables are enough")
    parser.add_argument("--systems", help="names in systems.py, comma separated; newer and tuned competitors are there, too")


def prepare(options):
    options.entries = options.entries // 4 * 4  # the distribution fills four of five slots
    options.systems = named(ALL, options.systems) if options.systems else list(SYSTEMS)
    options.threads = [int(count) for count in options.threads.split(",")]
    options.tools = ["driver"] if options.keys != "uniform" else [tool for tool in options.tools.split(",") if tool]
    options.warmup = min(2.0, max(WARMUP, options.seconds / 5)) if options.seconds >= 1 else 0.05
    tier = options.tier or check.tier_for(options.entries, options.value_size)
    return Setup(options.out, options.entries, options.value_size, options.clients, options.tcp, tier)


def run(options):
    setup = prepare(options)
    journal = Journal(options.out, ("repetition", "system"))
    ended = journal.facts.setdefault("ended", [])
    journal.facts |= {"entries": options.entries, "clients": options.clients}
    # A system whose measurement had not ended is measured again.
    journal.keep([row for row in journal.rows if [row["repetition"], row["system"]] in ended])
    for repetition in range(options.repeats):
        for system in options.systems:
            if [repetition, system.name] not in ended:
                measure_system(of(system, setup), repetition, options, journal)
                ended.append([repetition, system.name])
                journal.write_facts()
    conclude(options, journal)


def measure_system(server, repetition, options, journal):
    """Measures one system. Only one server runs at a time, so that the measured cost is its own."""
    system = server.system
    say(f"{repetition + 1}/{options.repeats}  {system.label}: loading {options.entries:,} entries")
    with server:
        server.load()
        check.preload(server)
        facts = {"disk_mb": round(server.disk_mb(), 1)}
        for job in jobs(system, options, repetition):
            before = server.entries() if job.workload == "write" else None
            row, result, stdout = measure(server, job, options)
            check.timed_run(server, job, result)
            check.growth(server, job, result, before)
            journal.add({"repetition": repetition, **row})
            keep_raw(options.out / "raw", f"{repetition}-{system.name}-{job.workload}-{job.tool}-{job.threads}", result, stdout)
            say(f"      {job.workload:<15}{job.tool:>16} x{job.threads} {row['tps']:>11,.0f}/s   mean {row['mean_ms']:.3f} ms")
        if repetition == 0:
            facts |= {"version": server.version(), "settings": server.settings(), "check": check.system(server)}
        if system.is_redis:
            facts["snapshots"] = server.snapshots()
        journal.facts.setdefault(system.name, {}).update(facts)


def jobs(system, options, repetition):
    """Returns the jobs. Every second repetition reverses the order within a workload, so that no tool always gets the
    enlarged table."""
    if system.read:
        wanted = POSTGRES_TOOLS if system.baseline else POSTGRES
    else:
        wanted = REDIS_TOOLS if system.baseline else {name: ("driver",) for name in WORKLOADS}
    for name, tools in wanted.items():
        if name in ASIDE and options.size == "quick" or options.tools and name not in WORKLOADS:
            continue
        found = [Job(name, tool, count) for tool in tools if not options.tools or tool in options.tools for count in options.threads]
        yield from found if repetition % 2 == 0 else found[::-1]


def keep_raw(folder, name, result, stdout):
    folder.mkdir(exist_ok=True)
    said = stdout.partition(',"latency":')[0]  # the driver's histogram goes to a separate file
    (folder / f"{name}.out").write_text(said.replace(f"{ROOT}/", ""))
    if result["counts"]:
        lines = (f"{us} {count}\n" for us, count in sorted(result["counts"].items()))
        (folder / f"{name}.latency").write_text("".join(lines))


def conclude(options, journal):
    """Writes the results: summary.json has one row for each workload and system; by_tool.json also baselines and the
    slower tools."""
    by_tool = stats.summarise(journal.rows, ("workload", "system", "tool", "threads"), FIELDS)
    summary = [with_hit_rate(row, journal.facts) for row in stats.best(by_tool) if row["workload"] in WORKLOADS]
    others = [row["other_cpu"] for row in journal.rows]
    journal.facts["other_cpu"] = {"median": round(median(others), 2), "most": round(max(others), 2)}
    if options.size == "smoke":
        assert_smoke(options, summary, journal.facts)
    write_json(options.out / "by_tool.json", by_tool)
    pack(options.out)
    if options.charts:
        from . import charts  # imported here, because only charts need matplotlib

        charts.draw(options.out, summary, by_tool, options.seconds)
    print(f"\n{headline.about(options)}\n\n{tables.text(headline.HEAD, headline.cells(summary, journal.facts))}\n")
    print("\n".join(headline.conclusions(summary, journal.facts["other_cpu"]["median"])))
    journal.report(summary, workloads_report.render(options, summary, by_tool, journal.facts))


def with_hit_rate(row, facts):
    """Adds hit rates. If the fastest tool counts no hits, uses the hit rate of the checked pass of the same
    statements."""
    checked = facts.get(row["system"], {}).get("check", {}).get("hit_rate")
    return row | {"hit_rate": row["hit_rate"] or (checked if row["workload"] != "write" else None)}


def pack(out):
    """Packs the tools' output, and each run's latencies; a continued run adds to them."""
    if (out / "raw").exists():
        with tarfile.open(out / "raw.tar.xz", "w:xz") as tar:
            tar.add(out / "raw", arcname="raw")


def assert_smoke(options, summary, facts):
    """Asserts that every system answers every workload. Every run checks that reads hit and writes are stored."""
    found = {(row["workload"], row["system"]): row for row in summary}
    for system in options.systems:
        insist(facts[system.name].get("check"), f"{system.name} was not checked")
        for name in WORKLOADS:
            insist((name, system.name) in found, f"{system.name} has no figure for {name}")
    for (name, system), row in found.items():
        missing = [field for field in PROMISED if row.get(field) is None]
        insist(not missing, f"{system}, {name}: summary.json lacks {missing}")
        insist(row["tps"] > 0 and row["rss_mb"] > 0, f"{system}, {name}: a figure is zero")
        insist(0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"], f"{system}, {name}: percentiles are out of order")
    # The clock of CPU time may not tick during one short run on a busy machine; over all runs it does.
    insist(sum(row["cpu"] for row in summary) > 0, "no server used any CPU")
