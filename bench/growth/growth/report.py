"""A chart and a table for each axis. What bends a curve is said from the figures: where it falls fastest."""

import json
from statistics import median

import matplotlib

from rounds import charts, table
from rounds.systems import ALL

LABELS = {system.name: system.label for system in ALL}
COLOURS = {system.name: system.colour for system in ALL}
FIGURES = ("tps", "cpu", "rss_mb", "tier_hit_rate", "p99_ms")
# What is likely to bend each curve; the figures stand beside it, and a surprise in them deserves a better reason.
REASONS = {
    "entries": "Redis and the tier look a key up in memory that no longer fits the processor's caches; the table also in a deeper "
    "index, and past `shared_buffers` each page is copied from the page cache.",
    "tier": "as long as the tier is smaller than what is asked, misses go to the table and each pushes another copy out; past that, size costs only memory.",
    "value": "bytes are copied once in Redis and several times on the way through a Postgres session; from some kilobytes on, copying is all there is.",
    "clients": "the cores are taken: past one client for each core more clients only wait longer, and Postgres pays for each with a process to switch to.",
    "caches": "a session keeps what it knows of each cache; the first use of one reads the catalog.",
}


def write(options, rows):
    summary = summarise(rows)
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    parts = ["# How cost grows"]
    for axis in options.axes:
        found = [row for row in summary if row["axis"] == axis.name]
        if found:
            draw(options.out, axis, found)
            parts.append(section(axis, found))
    (options.out / "report.md").write_text("\n\n".join(parts) + "\n")


def summarise(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["axis"], row["value"], row["system"], row["round"]), []).append(row)
    return [middle(key, group) for key, group in groups.items()]


def middle(key, group):
    found = dict(zip(("axis", "value", "system", "round"), key))
    for field in FIGURES:
        known = [row[field] for row in group if row.get(field) is not None]
        found[field] = round(median(known), 4) if known else None
    rates = [row["tps"] for row in group]
    return {**found, "tps_min": min(rates), "tps_max": max(rates), "runs": len(group), "entries": group[0]["entries"]}


def section(axis, found):
    values = sorted({row["value"] for row in found})
    series = sorted(
        {(row["round"], row["system"]) for row in found}, key=lambda pair: (pair[0], list(LABELS).index(pair[1]))
    )
    lines = [(name, LABELS[system], *(cell(found, name, system, value) for value in values)) for name, system in series]
    head = ("round", "system", *(f"{value:,}" for value in values))
    return f"""## {axis.title}

{axis.asks} Requests/s, by {axis.unit}.

{table.markdown(head, lines)}

![{axis.title}]({axis.name}.png)

{bends(axis, found, values)} Likely why: {REASONS[axis.name]}"""


def at(found, name, system, value):
    return next((row for row in found if (row["round"], row["system"], row["value"]) == (name, system, value)), None)


def cell(found, name, system, value):
    row = at(found, name, system, value)
    if row is None:
        return ""
    tier = (
        f" ({row['tier_hit_rate']:.0%} from the tier)"
        if row["axis"] == "tier" and row["tier_hit_rate"] is not None
        else ""
    )
    return f"{row['tps']:,.0f}{tier}"


def bends(axis, found, values):
    """One sentence: each system's change from the first point to the last, reads."""
    said = []
    for system in axis.systems:
        first, last = at(found, "read", system, values[0]), at(found, "read", system, values[-1])
        if first and last:
            said.append(f"{LABELS[system]} {last['tps'] / first['tps']:.2f}")
    return f"Reads at {values[-1]:,} {axis.unit} over reads at {values[0]:,}: {', '.join(said)}."


def draw(folder, axis, found):
    with matplotlib.rc_context(charts.STYLE):
        names = [name for name in ("read", "write") if any(row["round"] == name for row in found)]
        figure, panels = charts.plt.subplots(1, len(names), figsize=(12, 4.6), squeeze=False, sharey=True)
        charts.head(figure, axis.title, axis.asks)
        for panel, name in zip(panels[0], names):
            curves(panel, axis, [row for row in found if row["round"] == name])
            panel.set_title(name)
            panel.grid(axis="y", color=charts.FAINT, linewidth=0.8)
            panel.set_xlabel(axis.unit)
        panels[0][0].set_ylabel("thousand requests/s")
        panels[0][-1].legend(frameon=False)
        charts.save(figure, folder, axis.name)


def curves(panel, axis, rows):
    panel.set_xscale("log", base=2 if axis.name in ("tier", "clients") else 10)
    for system in axis.systems:
        points = sorted((row for row in rows if row["system"] == system), key=lambda row: row["value"])
        if points:
            places = [row["value"] for row in points]
            panel.plot(places, [row["tps"] / 1000 for row in points], "o-", color=COLOURS[system], label=LABELS[system])
            panel.fill_between(
                places,
                [r["tps_min"] / 1000 for r in points],
                [r["tps_max"] / 1000 for r in points],
                color=COLOURS[system],
                alpha=0.15,
            )
    values = sorted({row["value"] for row in rows})
    panel.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
    panel.minorticks_off()
    panel.set_ylim(bottom=0)
