"""The report of hit rates: one table and one chart a case, medians over the repetitions."""

import json
from statistics import median

import matplotlib

from rounds import charts, table
from rounds.check import insist as must

from . import cases, systems

LABELS = {system.name: system.label for system in systems.SYSTEMS}
COLOURS = {system.name: system.colour for system in systems.SYSTEMS}
FIGURES = (
    "hit_rate",
    "hot_hit_rate",
    "hits_per_second",
    "cache_mb",
    "server_mb",
    "per_cache_memory",
    "per_server_memory",
    "refused",
    "cpu_seconds",
)
HEAD = (
    "system",
    "hit rate",
    "spread",
    "hot-set hit rate",
    "cache MB",
    "server MB at peak",
    "hit rate per memory of the cache",
    "per memory of the server",
    "hits/s",
    "server CPU s per million gets",
)


def write(options, rows, facts):
    summary = summarise(rows)
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(options.out, summary)
    title = f"# Hit rate under a memory limit: {' and '.join(case.name for case in options.cases)}"
    parts = [title, asked(options, facts)]
    for case in options.cases:
        found = [row for row in summary if row["case"] == case.scaled(options.scale).name]
        if found:
            parts += [part(case, found)]
    (options.out / "report.md").write_text("\n\n".join([*parts, "![Hit rate](hit_rate.png)", READING]) + "\n")


def summarise(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["case"], row["system"]), []).append(row)
    return [middle(group) for group in groups.values()]


def middle(group):
    rates = [row["hit_rate"] for row in group]
    gets = median(row["raw"]["hits"] + row["raw"]["misses"] for row in group)
    return {
        **{name: group[0][name] for name in ("case", "system", "version", "limit_mb")},
        **{name: median(row[name] for row in group) for name in FIGURES},
        **({"tier_hit_rate_both_passes": share} if (share := group[0].get("tier_hit_rate_both_passes")) else {}),
        "least": min(rates),
        "most": max(rates),
        "runs": len(group),
        "gets": gets,
    }


def asked(options, facts):
    system = facts["machine"]
    return f"""{system['system']}, Linux {system['kernel']}, {system['cores']} cores, {system['memory_gb']} GB. The data set is four times
the limit; 20 % of the keys get 80 % of the gets; on a miss, set. A pass of four gets a key warms up, the next is counted.
{options.clients} clients on a unix socket, the same client for all.{" **Scaled down by " + str(options.scale) + ": a look, no measurement.**" if options.scale > 1 else ""}"""


def part(case, found):
    keys = f"{case.keys:,} keys, values of {case.value_size:,} bytes, {case.gets:,} gets a pass"
    lines = [cells(row) for row in sorted(found, key=lambda row: -row["per_cache_memory"])]
    versions = ", ".join(sorted({row["version"] for row in found}))
    extra = "".join(tier_note(row) for row in found)
    return f"""## {keys}

{table.markdown(HEAD, lines)}

{versions}.{extra} Must {case.must:.0%}, aim {case.aim:.0%} for pgcache, per byte of memory. Published elsewhere: {case.published}."""


def cells(row):
    refused = f" ({row['refused']:.0f} sets refused)" if row["refused"] else ""
    return (
        LABELS[row["system"]] + refused,
        f"{row['hit_rate']:.2%}",
        f"{row['least']:.2%} to {row['most']:.2%}" if row["runs"] > 1 else "one run",
        f"{row['hot_hit_rate']:.2%}",
        f"{row['cache_mb']:,.0f}",
        f"{row['server_mb']:,.0f}",
        f"{row['per_cache_memory']:.2%}",
        f"{row['per_server_memory']:.2%}",
        f"{row['hits_per_second']:,.0f}",
        f"{row['cpu_seconds'] / (2 * row['gets']) * 1e6:.0f}",
    )


def tier_note(row):
    share = row.get("tier_hit_rate_both_passes")
    if share is None:
        return ""
    return f" The table cache keeps every entry in its table, on disk; its tier answered {share:.1%} of the gets of both passes."


READING = """`cache MB` is what the cache itself takes by the server's own word: for pgcache the shared region, bookkeeping
included (it never grows); for Redis `used_memory_peak`; for memcached its slab pages and hash table. `server MB` is the
proportional set size of all processes at the worst moment: with Postgres the backends, their buffers and its own shared
memory, with Redis what the allocator wastes. A hit rate counts per memory as it is divided by what was used over the
limit; less than the limit earns nothing. CPU is that of both passes. Clusters without a cache take 30 to 60 MB, which weighs at 100 MiB and not at 2 GiB."""


def draw(folder, summary):
    plt = charts.plt
    names = list(dict.fromkeys(row["case"] for row in summary))
    with matplotlib.rc_context(charts.STYLE):
        most = max(sum(row["case"] == name for row in summary) for name in names)
        figure, axes = plt.subplots(1, len(names), figsize=(12, 1.9 + 0.42 * most), squeeze=False)
        charts.head(
            figure,
            "Hit rate under a memory limit",
            "Dark: per memory of the cache. Pale: per memory of the whole server, at its peak.",
        )
        for axis, name in zip(axes[0], names):
            panel(axis, name, [row for row in summary if row["case"] == name])
        charts.save(figure, folder, "hit_rate")


def panel(axis, name, rows):
    rows = sorted(rows, key=lambda row: -row["per_cache_memory"])
    axis.set_title(name)
    for place, row in enumerate(rows):
        axis.barh(place, row["per_cache_memory"] * 100, height=0.62, color=COLOURS[row["system"]])
        axis.barh(place, row["per_server_memory"] * 100, height=0.62, color="white", alpha=0.45)
        axis.text(
            row["per_cache_memory"] * 100 + 1, place, f"{row['per_cache_memory']:.1%}", va="center", fontweight="bold"
        )
    axis.set_yticks(range(len(rows)), [LABELS[row["system"]] for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(0, 112)
    axis.set_xlabel("percent")


def insist(rows):
    """A limit under which everything hits, or nothing evicts, measures nothing."""
    must({row["system"] for row in rows} >= set(systems.SMOKE), "a system has no figure")
    for row in rows:
        must(0.3 < row["hit_rate"] < 0.95, f"{row['system']}, {row['case']}: a hit rate of {row['hit_rate']:.1%}")
        must(row["hot_hit_rate"] > row["hit_rate"], f"{row['system']}: hot keys hit no more than others")
        must(
            row["raw"]["hits"] + row["raw"]["misses"] >= row["raw"]["hot_gets"] > 0,
            f"{row['system']}: gets do not add up",
        )
