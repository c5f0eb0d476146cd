"""Draws the charts: each system has the same colour in every chart, medians are bars or points, and the spread is drawn
if a figure has several runs. The subtitle gives the number and length of the runs behind the figures."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen first)

from .systems import ALL, WORKLOADS  # noqa: E402
from .tables import runs_said, tool_pairs  # noqa: E402

INK, FAINT, SPREAD = "#222222", "#d8dce1", "#e0a030"  # no system has the colour of SPREAD
TITLES = {"read": "Read: 80 % of the keys exist", "mixed": "Mixed: 20 % writes", "write": "Write: 10 % overwrite"}
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
    "savefig.dpi": 110,
    "savefig.facecolor": "white",
}
plt.rcParams.update(STYLE)


def draw(folder, summary, by_tool, seconds):
    said = runs_said(summary, seconds)
    throughput(folder, "throughput", "Requests per second", summary, said)
    latency(folder, summary, said)
    cost(folder, summary, said)
    tools(folder, by_tool, seconds)


def head(figure, title, subtitle):
    figure.text(0.012, 0.985, title, fontsize=14, fontweight="bold", va="top")
    figure.text(0.012, 0.985 - 0.30 / figure.get_figheight(), subtitle, fontsize=9.5, color="#555555", va="top")


def save(figure, folder, name):
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.62 / figure.get_figheight()), w_pad=2.5)
    figure.savefig(folder / f"{name}.png")
    plt.close(figure)


def rows_of_bars(axis, labels):
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.grid(axis="x", color=FAINT, linewidth=0.8)
    axis.set_axisbelow(True)


def panels(title, subtitle, rows):
    """Prepares one axis for each workload, side by side, with the systems listed on the left. Returns the figure, and
    for each axis the place, colour and row of each measured system."""
    systems = [system for system in ALL if any(row["system"] == system.name for row in rows)]
    figure, axes = plt.subplots(1, len(WORKLOADS), figsize=(12, 1.9 + 0.42 * len(systems)), sharey=True)
    head(figure, title, subtitle)
    rows_of_bars(axes[0], [system.label for system in systems])
    found = {(row["workload"], row["system"]): row for row in rows}
    drawn = []
    for axis, name in zip(axes, WORKLOADS):
        axis.set_title(TITLES[name], pad=10)
        axis.grid(axis="x", color=FAINT, linewidth=0.8)
        axis.set_axisbelow(True)
        here = [(place, system.colour, found.get((name, system.name))) for place, system in enumerate(systems)]
        drawn.append((axis, [entry for entry in here if entry[2]]))
    return figure, drawn


def throughput(folder, name, title, summary, said):
    figure, drawn = panels(title, f"Bars: {said}.{lines_said(summary)}", summary)
    top = max(row["tps_max"] for row in summary) / 1000
    for axis, entries in drawn:
        for place, colour, row in entries:
            bar(axis, place, 0.62, colour, row, INK)
            axis.text(row["tps_max"] / 1000 + top * 0.025, place, f"{row['tps'] / 1000:.1f}", va="center", fontweight="bold")
        axis.set_xlim(0, top * 1.22)
        axis.set_xlabel("thousand requests/s")
    save(figure, folder, name)


def lines_said(rows):
    """Returns the legend's note about the spread lines. Returns no note for a single run, which has no spread."""
    return " Lines: slowest and fastest run." if any(row["runs"] > 1 for row in rows) else ""


def bar(axis, place, height, colour, row, line):
    middle, low, high = (row[field] / 1000 for field in ("tps", "tps_min", "tps_max"))
    axis.barh(place, middle, height=height, color=colour)
    if row["runs"] > 1:
        axis.plot([low, high], [place, place], color=line, linewidth=1.4, marker="|", markersize=7, solid_capstyle="butt")


def latency(folder, summary, said):
    what = f"Dot: median request. Ring: 95 of 100 are faster. Bar: 99 of 100. Logarithmic; each the {said}."
    figure, drawn = panels("Latency of a request", what, summary)
    low, high = min(row["p50_ms"] for row in summary) * 0.7, max(row["p99_ms"] for row in summary) * 3.4
    ticks = [tick for tick in TICKS if low <= tick <= high]
    for axis, entries in drawn:
        axis.set_xscale("log")
        for place, colour, row in entries:
            p50, p95, p99 = (row[field] for field in ("p50_ms", "p95_ms", "p99_ms"))
            axis.plot([p50, p99], [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
            axis.plot(p50, place, "o", color=colour, markersize=9)
            axis.plot(p95, place, "o", markerfacecolor="white", markeredgecolor=colour, markeredgewidth=2, markersize=8)
            axis.plot(p99, place, "|", color=colour, markersize=14, markeredgewidth=3)
            axis.annotate(f"p99 {p99:.2f}", (p99, place), xytext=(7, 0), textcoords="offset points", va="center", fontsize=9)
        axis.set_xlim(low, high)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.set_xlabel("milliseconds")
    save(figure, folder, "latency")


def cost(folder, summary, said):
    """Draws the CPU time for a request, not the CPU in use, because a server that does more work in the same time is
    not more expensive."""
    what = f"CPU of all the server's processes over requests answered, {said}; client CPU is not in it. Grey: memory (PSS)."
    figure, drawn = panels("Server CPU for each request", what, summary)
    most = max(row["cpu"] / row["tps"] for row in summary) * 1e6
    for axis, entries in drawn:
        for place, colour, row in entries:
            used = row["cpu"] / row["tps"] * 1e6
            axis.barh(place, used, height=0.62, color=colour)
            axis.text(used + most * 0.03, place, f"{used:.1f}", va="center", fontweight="bold")
            axis.text(most * 1.63, place, f"{row['rss_mb']:.0f} MB", va="center", ha="right", color="#777777", fontsize=9)
        axis.set_xlim(0, most * 1.65)
        axis.set_xlabel("microseconds")
    save(figure, folder, "cost")


def tools(folder, by_tool, seconds):
    found = tool_pairs(by_tool)
    if not found:
        return
    figure, axis = plt.subplots(figsize=(12, 1.7 + 0.55 * len(found)))
    every = [row for _, *rows in found for row in rows]
    said = runs_said(every, seconds)
    what = f"Each request by the server's own tool (pale) and by the one driver for both (dark): {said}.{lines_said(every)}"
    head(figure, "Is the client what is measured?", what)
    top = max(row["tps_max"] for _, *rows in found for row in rows) / 1000
    for place, (_, own, ours) in enumerate(found):
        for at, row, colour in ((place - 0.19, own, "#bcc6d1"), (place + 0.19, ours, "#3f4d5c")):
            bar(axis, at, 0.34, colour, row, SPREAD)
            name = f"{row['tps'] / 1000:.1f}   {row['tool']}, {row['threads']} thread{'s' * (row['threads'] > 1)}"
            axis.text(row["tps_max"] / 1000 + top * 0.012, at, name, va="center", fontsize=9)
    rows_of_bars(axis, [label for label, *_ in found])
    axis.set_xlim(0, top * 1.22)
    axis.set_xlabel("thousand requests/s")
    save(figure, folder, "tools")
