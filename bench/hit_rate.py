"""Measures the hit rate of each cache when its memory is a quarter of the data, after a published comparison.

20 % of the keys receive 80 % of the gets, and a miss is followed by a set. A first pass of four gets per key warms the
cache, the next pass is counted.
"""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from . import processes, trace
from .base import Journal, drive, ground, insist, named, say
from .charts import head, plt, rows_of_bars, save
from .servers import Setup, of
from .stats import summarise
from .systems import HOT, MEMORY, NEWER, System
from .tables import markdown, runs_said

MIB = 1024**2
OVER, GETS = 4, 4  # the data set over the limit; gets for each key and pass
EVERY = 1.0  # seconds between two readings of memory; each walks the page tables of 2 GiB

NO_SAVE = ("--save", "", "--maxmemory", "{mb}mb", "--maxmemory-policy")
TEN = ("--maxmemory-samples", "10")
LRU, LFU = (*NO_SAVE, "allkeys-lru"), (*NO_SAVE, "allkeys-lfu", *TEN)


def other(name, label, options, program="redis-server", suite=""):
    colour = "#5b8a3c" if program == "memcached" else "#c8502d"
    return System(name, label, colour, program=program, options=options, suite=suite)


# Each gets the same limit.
SYSTEMS = (
    MEMORY,
    HOT,
    other("memcached", "memcached", ("-m", "{mb}"), "memcached"),
    # Size classes close to each other waste less of each chunk.
    other("memcached_fine", "memcached, fine size classes", ("-m", "{mb}", "-f", "1.05"), "memcached"),
    other("redis_lru", "Redis, allkeys-lru", LRU),
    other("redis_lru_10", "Redis, allkeys-lru, 10 samples", (*LRU, *TEN)),
    other("redis_lfu_10", "Redis, allkeys-lfu, 10 samples", LFU),
    other("memcached_new", "newer memcached", ("-m", "{mb}"), "memcached", NEWER),
    other("redis_new_lru", "newer Redis, allkeys-lru", LRU, suite=NEWER),
    other("redis_new_lfu_10", "newer Redis, allkeys-lfu, 10 samples", LFU, suite=NEWER),
    other("valkey_new_lru", "Valkey, allkeys-lru", LRU, "valkey-server", NEWER),
    other("valkey_new_lfu_10", "Valkey, allkeys-lfu, 10 samples", LFU, "valkey-server", NEWER),
)
LABELS = {system.name: system.label for system in SYSTEMS}
COLOURS = {system.name: system.colour for system in SYSTEMS}
SIZES = {
    "full": {"scale": 1, "repeats": 3, "cases": "2GiB,100MiB", "seconds": 0},
    "quick": {"scale": 1, "repeats": 1, "cases": "2GiB,100MiB", "seconds": 0, "systems": "pgcache_memory,memcached,redis_lru,redis_new_lfu_10"},
    "smoke": {"scale": 16, "repeats": 1, "cases": "100MiB", "seconds": 0, "systems": "pgcache_memory,memcached,redis_lru"},
}
FIELDS = ("limit_mb", "hit_rate", "hot_hit_rate", "hits_per_second", "cache_mb", "server_mb", "per_cache_memory", "per_server_memory",
          "refused", "cpu_seconds", "gets", "tier_hit_rate_both_passes")  # fmt: skip
HEAD = ("system", "hit rate", "spread", "hot-set hit rate", "cache MB", "server MB at peak", "hit rate per memory of the cache",
        "per memory of the server", "hits/s", "server CPU s per million gets")  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    limit: int
    value_size: int
    must: float  # the least hit rate of pgcache, per byte of memory
    aim: float
    published: str

    @property
    def keys(self):
        """Returns the number of keys, a multiple of four, because the distribution fills four of five slots."""
        return self.limit * OVER // self.value_size // 4 * 4

    @property
    def gets(self):
        return self.keys * GETS

    @property
    def limit_mb(self):
        return self.limit // MIB

    def scaled(self, divisor):
        return self if divisor == 1 else replace(self, name=f"{self.name}-{divisor}", limit=self.limit // divisor)


CASES = (
    Case("2GiB", 2048 * MIB, 525_312, 0.74, 0.79,
         "memcached 70.88 % (per memory used 70.46 %), another cache 68.12 % (68.12 %), Redis allkeys-lru 56.41 % "
         "(56.41 %), a third 71.44 % but 40 % over its limit (49.31 %)"),
    Case("100MiB", 100 * MIB, 512, 0.66, 0.70, "memcached 63.77 %, another cache 62.04 %, Redis 58.68 %, a third 51.97 %"),
)  # fmt: skip


def cases_named(names):
    """Returns the cases with these names. A number is a case: values of so many bytes and a tier of default size."""
    own = [Case(name, 64 * MIB, int(name), 0.74, 0.79, "nothing") for name in names.split(",") if name.isdigit()]
    return named([*CASES, *own], names)


def add_options(parser):
    parser.add_argument("--cases", help="of 2GiB, 100MiB, and sizes of values in bytes, in 64 MiB")
    parser.add_argument("--systems", help="comma separated, as in hit_rate.py")
    parser.add_argument("--scale", type=int, help="divides limit and keys; 1 is the published size")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--trace", type=Path, help="a CSV of key,size,op,ttl,time: its hit rates, without servers")
    parser.add_argument("--mib", help="sizes of the tier for --trace, comma separated")


def run(options):
    if options.trace:
        return trace.run(options)
    cases = [case.scaled(options.scale) for case in cases_named(options.cases)]
    journal = Journal(options.out, ("repetition", "case", "system"))
    for repetition in range(options.repeats):
        for case in cases:
            for system in named(SYSTEMS, options.systems):
                if not journal.has(repetition, case.name, system.name):
                    journal.add({"repetition": repetition, **measure(case, system, options)})
                    say(told(journal.rows[-1]))
    summary = summarise(journal.rows, ("case", "system", "version"), FIELDS, of="hit_rate")
    if options.size == "smoke":
        assert_smoke(summary)
    draw(options.out, summary)
    journal.report(summary, render(options, cases, summary, journal.facts["machine"]))


def told(row):
    return (f"{row['case']:<14}{LABELS[row['system']]:<38}{row['hit_rate']:.2%} hits, hot {row['hot_hit_rate']:.2%}, "
            f"cache {row['cache_mb']:,.0f} MB, server {row['server_mb']:,.0f} MB, {row['hits_per_second']:,} hits/s")  # fmt: skip


def measure(case, system, options):
    setup = Setup(options.out, case.keys, case.value_size, options.clients, tier_mb=case.limit_mb)
    with of(system.limited(case.limit_mb), setup) as server:
        server.create()
        before = processes.cpu_seconds(server.pid)
        with Peak(server.pid) as peak:
            load = {"entries": case.keys, "clients": options.clients, "value_size": case.value_size, "gets": case.gets}
            seen = drive("requests", **load, warmup_gets=case.gets, workload="cached", keys="hot", **server.to_driver)
        cpu = processes.cpu_seconds(server.pid) - before
        return {**row(case, server, seen, peak.mb), "cpu_seconds": round(cpu, 2)}


def row(case, server, seen, peak_mb):
    gets, used_mb = seen["hits"] + seen["misses"], server.cache_bytes() / MIB
    insist(seen["hits"], f"{server.system.name}: not one hit")
    insist(gets >= seen["hot_gets"] > 0, f"{server.system.name}: gets do not add up")
    hit_rate = seen["hits"] / gets
    return {
        "case": case.name,
        "system": server.system.name,
        "version": server.version(),
        "limit_mb": case.limit_mb,
        "gets": gets,
        "hit_rate": round(hit_rate, 5),
        "hot_hit_rate": round(seen["hot_hits"] / seen["hot_gets"], 5),
        "hits_per_second": round(seen["hits"] / seen["seconds"]),
        "refused": seen["refused"],
        "cache_mb": round(used_mb, 1),
        "server_mb": round(peak_mb, 1),
        "per_cache_memory": round(per_memory(hit_rate, used_mb, case.limit_mb), 5),
        "per_server_memory": round(per_memory(hit_rate, peak_mb, case.limit_mb), 5),
        **tier_share(server),
    }


def per_memory(hit_rate, used, limit):
    """Returns the hit rate, reduced in proportion if the server used more memory than the limit."""
    return hit_rate / max(1.0, used / limit)


def tier_share(server):
    """Returns the hit rate of the tier alone. It is lower than the hit rate of a table cache, whose table answers the
    remaining reads."""
    if server.system is not HOT:
        return {}
    counted = server.counters()
    reads = sum(counted[name] for name in ("hot_hits", "table_hits", "misses"))
    return {"tier_hit_rate_both_passes": round(counted["hot_hits"] / reads, 5)}


class Peak(threading.Thread):
    """Watches the proportional set size of a server until the thread is stopped."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.mb, self.ended = pid, 0.0, threading.Event()

    def run(self):
        while not self.ended.wait(EVERY):
            self.look()

    def look(self):
        self.mb = max(self.mb, processes.pss_mb(self.pid))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()
        self.look()


def assert_smoke(summary):
    """Rejects a limit under which every request hits or no entry is evicted, because it would measure nothing."""
    for row in summary:
        insist(0.3 < row["hit_rate"] < 0.95, f"{row['system']}, {row['case']}: a hit rate of {row['hit_rate']:.1%}")
        insist(row["hot_hit_rate"] > row["hit_rate"], f"{row['system']}: hot keys hit no more than others")


def render(options, cases, summary, machine):
    look = f" **Scaled down by {options.scale}: a look, no measurement.**" if options.scale > 1 else ""
    parts = [
        f"# Hit rate under a memory limit: {' and '.join(case.name for case in cases)}",
        f"""{ground(machine)}. The data set is four times the limit; 20 % of the keys get 80 % of the gets; on a miss, set. A pass of
four gets a key warms up, the next is counted. {options.clients} clients on a unix socket, the same driver for all.{look}""",
    ]
    for case in cases:
        found = sorted((row for row in summary if row["case"] == case.name), key=lambda row: -row["per_cache_memory"])
        versions = ", ".join(sorted({row["version"] for row in found}))
        parts.append(f"""## {case.keys:,} keys, values of {case.value_size:,} bytes, {case.gets:,} gets a pass

{markdown(HEAD, map(cells, found))}

{versions}.{"".join(map(tier_note, found))} Must {case.must:.0%}, aim {case.aim:.0%} for pgcache, per byte of memory. Published elsewhere: {case.published}.""")
    return "\n\n".join([*parts, "![Hit rate](hit_rate.png)", READING])


def cells(row):
    refused = f" ({row['refused']:.0f} sets refused)" if row["refused"] else ""
    return (
        LABELS[row["system"]] + refused,
        f"{row['hit_rate']:.2%}",
        f"{row['hit_rate_min']:.2%} to {row['hit_rate_max']:.2%}" if row["runs"] > 1 else "one run",
        f"{row['hot_hit_rate']:.2%}",
        *(f"{row[name]:,.0f}" for name in ("cache_mb", "server_mb")),
        *(f"{row[name]:.2%}" for name in ("per_cache_memory", "per_server_memory")),
        f"{row['hits_per_second']:,.0f}",
        f"{row['cpu_seconds'] / (2 * row['gets']) * 1e6:.0f}",
    )


def tier_note(row):
    share = row["tier_hit_rate_both_passes"]
    if share is None:
        return ""
    return f" The table cache keeps every entry in its table, on disk; its tier answered {share:.1%} of the gets of both passes."


READING = """`cache MB` is what the cache itself takes by the server's own word: for pgcache the shared region, bookkeeping
included (it never grows); for Redis `used_memory_peak`; for memcached its slab pages and hash table. `server MB` is the
proportional set size of all processes at the worst moment: with Postgres the backends, their buffers and its own shared
memory, with Redis what the allocator wastes. A hit rate counts per memory as it is divided by what was used over the
limit; less than the limit earns nothing. CPU is that of both passes. Clusters without a cache take 30 to 60 MB, which weighs at 100 MiB and not at 2 GiB."""


def draw(folder, summary):
    names = list(dict.fromkeys(row["case"] for row in summary))
    most = max(sum(row["case"] == name for row in summary) for name in names)
    figure, axes = plt.subplots(1, len(names), figsize=(12, 2.1 + 0.5 * most), squeeze=False)
    what = "Dark: per memory of the cache. Pale: per memory of the whole server, at its peak."
    head(figure, "Hit rate under a memory limit", f"{what} Each {runs_said(summary)}, one pass of four gets a key.")
    for axis, name in zip(axes[0], names):
        rows = sorted((row for row in summary if row["case"] == name), key=lambda row: -row["per_cache_memory"])
        axis.set_title(name)
        for place, row in enumerate(rows):
            for at, field, alpha in ((place - 0.18, "per_cache_memory", 1), (place + 0.18, "per_server_memory", 0.45)):
                axis.barh(at, row[field] * 100, height=0.34, color=COLOURS[row["system"]], alpha=alpha)
                axis.text(row[field] * 100 + 1, at, f"{row[field]:.1%}", va="center", fontsize=9)
        rows_of_bars(axis, [f"{LABELS[row['system']]}\n({row['version'].partition(' (')[0]})" for row in rows])
        axis.set_xlim(0, 112)
        axis.set_xlabel("percent")
    save(figure, folder, "hit_rate")
