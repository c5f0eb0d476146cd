"""Measures how cost grows with the number of entries, the size of the hot tier, the value size, the clients, and the
number of caches.

One of these quantities grows, everything else is fixed: 32 clients, a unix socket, 37-byte values, a tier with room for
all entries.
"""

from argparse import Namespace
from dataclasses import dataclass, replace

from . import key_distribution as kd, tools
from .base import Journal, insist, named, say
from .charts import FAINT, head, plt, save
from .servers import DATABASE, Postgres, Setup, of
from .stats import summarise
from .systems import ALL, COLOURS, LABELS
from .tables import cpu_us, markdown, runs_said
from .tools import Job

SIZES = {
    "full": {"seconds": 4.0, "repeats": 3, "entries": 1_000_000},
    "quick": {"seconds": 1.0, "repeats": 3, "entries": 100_000},
    "smoke": {"seconds": 0.15, "repeats": 1, "entries": 2000, "axes": "clients,caches"},
}
FEW = ("redis", "pgcache_memory")  # the systems of a quick run, whose curves say the most
LARGE = 8192  # bytes of a value: Redis stores a gigabyte a second, so runs are short
MEMORY_FOR_VALUES = 640 * 1024**2  # entries times value size, along the axis of values
WORKLOADS = ("read", "write")
FIELDS = ("entries", "tps", "cpu", "rss_mb", "tier_hit_rate", "p99_ms")
CACHES_SQL = "SELECT cache_get('key:' || :n, ('c' || :c)::regclass);\n"


@dataclass(frozen=True)
class Axis:
    name: str
    title: str
    unit: str
    values: dict  # the values of the growing quantity, by size of the run
    asks: str  # the question of the chart
    reason: str  # the likely reason of a bend in the curve; a surprise in the figures deserves a better one
    systems: tuple = ("redis", "table_unlogged", "pgcache_hot", "pgcache_memory")

    def systems_of(self, size):
        return [name for name in self.systems if size == "full" or name in FEW or len(self.systems) < 4]


def points(full, quick, smoke):
    return {"full": full, "quick": quick, "smoke": smoke}


AXES = (
    Axis("entries", "Entries", "entries", points((10_000, 100_000, 1_000_000, 10_000_000, 30_000_000), (10_000, 100_000, 1_000_000), (1000, 2000)),
         "Does a larger cache answer slower?",
         "Redis and the tier look a key up in memory that no longer fits the processor's caches; the table also in a deeper "
         "index, and past `shared_buffers` each page is copied from the page cache."),
    Axis("tier", "Size of the hot tier", "MiB", points((16, 64, 256, 1024, 4096), (16, 256, 4096), (16, 32)),
         "What does a tier that is too small cost, and one that is larger than needed?",
         "as long as the tier is smaller than what is asked, misses go to the table and each pushes another copy out; past that, "
         "size costs only memory.", ("pgcache_hot",)),
    Axis("value", "Size of a value", "bytes", points((16, 128, 1024, 8192, 65536), (37, 1024, 65536), (37, 1024)),
         "How do requests fall as values grow?",
         "bytes are copied once in Redis and several times on the way through a Postgres session; from some kilobytes on, copying is all there is."),
    Axis("clients", "Clients", "clients", points((1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 8, 32, 64), (1, 2)),
         "Where does another client add nothing?",
         "the cores are taken: past one client for each core more clients only wait longer, and Postgres pays for each with a process to switch to."),
    Axis("caches", "Caches in the database", "caches", points((1, 10, 100, 1000), (1, 100), (1, 3)),
         "Does a session pay for the number of caches it uses? The same entries, spread over them, a random one asked each time.",
         "a session keeps what it knows of each cache; the first use of one reads the catalog.", ("pgcache_hot", "pgcache_memory")),
)  # fmt: skip


def add_options(parser):
    parser.add_argument("--axes", help="comma separated (all)")
    parser.add_argument("--entries", type=int, help="on the axes that do not grow them")
    parser.add_argument("--most-entries", type=int, default=30_000_000, help="leave out larger points (30000000: 12 GB of memory, 20 of disk)")


def run(options):
    axes = named(AXES, options.axes)
    journal = Journal(options.out, ("axis", "system", "repetition", "value"))
    for repetition in range(options.repeats):
        for axis in axes:
            for system in axis.systems_of(options.size):
                todo = [value for value in values(axis, options) if not journal.has(axis.name, system, repetition, value)]
                for row in measure(axis, todo, system, options) if todo else ():
                    journal.add({"axis": axis.name, "repetition": repetition, **row})
                    say(f"{axis.name:<8}{row['value']:>11,} {axis.unit:<8}{system:<18}{row['workload']:<6}{row['tps']:>10,.0f}/s")
    if options.size == "smoke":
        for axis in axes:
            found = {row["value"] for row in journal.rows if row["axis"] == axis.name and row["tps"] > 0}
            insist(found == set(values(axis, options)), f"{axis.name}: points are missing, only {found} are there")
    summary = summarise(journal.rows, ("axis", "value", "system", "workload"), FIELDS)
    sections = [section(axis, found, options) for axis in axes if (found := [row for row in summary if row["axis"] == axis.name])]
    journal.report(summary, "\n\n".join(["# How cost grows", *sections]))


def values(axis, options):
    return [value for value in axis.values[options.size] if axis.name != "entries" or value <= options.most_entries]


def measure(axis, todo, name, options):
    """Yields a row for each value and workload; one server serves all numbers of clients."""
    system = next(system for system in ALL if system.name == name)
    setup = Setup(options.out, options.entries)
    if axis.name == "clients":
        with of(system, replace(setup, clients=max(todo))) as server:
            server.load()
            for value in todo:
                server.setup = replace(setup, clients=value)
                yield from asked(server, value, options.seconds)
        return
    for value in todo:
        if axis.name == "caches":
            with Postgres(setup, system) as server:
                yield of_caches(server, value, options)
            continue
        with of(system, setup_at(axis.name, value, setup)) as server:
            server.load()
            yield from asked(server, value, min(options.seconds, 1.0) if axis.name == "value" and value >= LARGE else options.seconds)


def setup_at(axis, value, setup):
    if axis == "entries":
        return replace(setup, entries=value, tier_mb=max(2048, value // 4000))
    if axis == "tier":
        return replace(setup, tier_mb=value)
    entries = min(setup.entries, MEMORY_FOR_VALUES // value) // 4 * 4  # large values: as many as memory allows
    return replace(setup, value_size=value, entries=entries, tier_mb=8192 if value >= LARGE else 2048)


def asked(server, value, seconds):
    timing = Namespace(seconds=seconds, warmup=max(0.05, min(2.0, seconds / 5)), keys="uniform")
    for name in WORKLOADS:
        row, _, _ = tools.measure(server, Job(name), timing)
        yield {"value": value, "entries": server.setup.entries, **row}


def of_caches(server, count, options):
    """Measures many caches with pgbench, because the driver knows one cache. The entries are spread evenly over the
    caches and read once each, so that the tier has copies; a first run fills the sessions' own caches of the
    definitions."""
    storage, each = ("memory" if server.system.name == "pgcache_memory" else "unlogged"), max(1, options.entries // count)
    every = f"generate_series(1, {count}) AS c, generate_series(1, {each}) AS n"
    server.sql("CREATE EXTENSION pgcache")
    server.sql(f"SELECT count(cache_create('c' || c, storage => '{storage}')) FROM generate_series(1, {count}) AS c")
    server.sql(f"SELECT count(cache_set('key:' || n, '{kd.value(37)}', NULL, ('c' || c)::regclass)) FROM {every}")
    server.sql(f"SELECT count(cache_get('key:' || n, ('c' || c)::regclass)) FROM {every}")
    script = options.out / "caches.sql"
    script.write_text(f"\\set n random(1, {each})\n\\set c random(1, {count})\n{CACHES_SQL}")
    words = [server.bin / "pgbench", *server.tool_connection, "-n", "-M", "prepared", "-c", server.setup.clients, "-f", script]
    tools.output([*words, "-t", 200, DATABASE])
    seconds = max(1, round(options.seconds))
    stdout, seen = tools.watch(server, [*words, "-T", seconds, DATABASE], seconds)
    script.unlink()
    rate = {"tps": tools.number(r"tps = ([\d.]+)", stdout), "mean_ms": tools.number(r"latency average = ([\d.]+) ms", stdout)}
    return {"value": count, "system": server.system.name, "workload": "read", "entries": options.entries, **rate, **seen}


def section(axis, rows, options):
    draw(options.out, axis, rows, options.seconds)
    values = sorted({row["value"] for row in rows})
    found = {(row["workload"], row["system"], row["value"]): row for row in rows}
    series = [(name, system) for name in WORKLOADS for system in axis.systems if any(key[:2] == (name, system) for key in found)]
    lines = [(name, LABELS[system], *(cell(found.get((name, system, value))) for value in values)) for name, system in series]
    ends = [(system, *(found.get(("read", system, value)) for value in (values[0], values[-1]))) for system in axis.systems]
    said = ", ".join(f"{LABELS[system]} {last['tps'] / first['tps']:.2f}" for system, first, last in ends if first and last)
    return f"""## {axis.title}

{axis.asks} Requests/s and the server's processor time for one, by {axis.unit}: {runs_said(rows, options.seconds)}.

{markdown(("workload", "system", *(f"{value:,}" for value in values)), lines)}

![{axis.title}]({axis.name}.png)

Reads at {values[-1]:,} {axis.unit} over reads at {values[0]:,}: {said}. Likely why: {axis.reason}"""


def cell(row):
    if row is None:
        return ""
    tier = row["axis"] == "tier" and row["tier_hit_rate"] is not None
    return f"{row['tps']:,.0f}, {cpu_us(row)} µs" + (f" ({row['tier_hit_rate']:.0%} from the tier)" if tier else "")


def draw(folder, axis, rows, seconds):
    names = [name for name in WORKLOADS if any(row["workload"] == name for row in rows)]
    figure, panels = plt.subplots(1, len(names), figsize=(12, 4.6), squeeze=False, sharey=True)
    band = "" if max(row["runs"] for row in rows) == 1 else " Bars: slowest and fastest run."
    head(figure, axis.title, f"{axis.asks} Each point: {runs_said(rows, seconds)}.{band}")
    for panel, name in zip(panels[0], names):
        for system in axis.systems:
            mine = sorted((row for row in rows if (row["system"], row["workload"]) == (system, name)), key=lambda row: row["value"])
            if mine:
                tps = [row["tps"] / 1000 for row in mine]
                error = [[(r["tps"] - r["tps_min"]) / 1000 for r in mine], [(r["tps_max"] - r["tps"]) / 1000 for r in mine]]
                panel.errorbar([row["value"] for row in mine], tps, error if band else None, marker="o", capsize=3,
                               color=COLOURS[system], label=LABELS[system])  # fmt: skip
        panel.set_xscale("log", base=2 if axis.name in ("tier", "clients") else 10)
        values = sorted({row["value"] for row in rows})
        panel.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
        panel.minorticks_off()
        panel.set_ylim(bottom=0)
        panel.set_title(name)
        panel.grid(axis="y", color=FAINT, linewidth=0.8)
        panel.set_xlabel(axis.unit)
    panels[0][0].set_ylabel("thousand requests/s")
    panels[0][-1].legend(frameon=False)
    save(figure, folder, axis.name)
