"""The charts: one colour a system in all of them, medians as bars or points, the spread always drawn."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen first)

from .systems import ALL, ROUNDS  # noqa: E402

INK, FAINT, SPREAD = "#222222", "#d8dce1", "#e0a030"  # no system has the colour of SPREAD
TITLES = {"read": "Read: 80 % of the keys exist", "mixed": "Mixed: 20 % writes", "write": "Write: 10 % overwrite"}
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
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
}


def draw(folder, summary, by_tool):
    with plt.rc_context(STYLE):
        throughput(folder, summary)
        latency(folder, summary)
        cost(folder, summary)
        tools(folder, by_tool)


def present(rows):
    names = {row["system"] for row in rows}
    return [system for system in ALL if system.name in names]


def of_round(rows, name):
    return {row["system"]: row for row in rows if row["round"] == name}


def panels(title, subtitle, systems):
    """Three rounds side by side, with one list of systems on the left."""
    figure, axes = plt.subplots(1, len(ROUNDS), figsize=(12, 1.9 + 0.42 * len(systems)), sharey=True)
    head(figure, title, subtitle)
    for axis, name in zip(axes, ROUNDS):
        axis.set_title(TITLES[name], pad=10)
        axis.set_yticks(range(len(systems)), [system.label for system in systems])
        axis.set_ylim(len(systems) - 0.4, -0.6)
        axis.grid(axis="x", color=FAINT, linewidth=0.8)
        axis.set_axisbelow(True)
    return figure, axes


def head(figure, title, subtitle):
    figure.text(0.012, 0.985, title, fontsize=14, fontweight="bold", va="top")
    figure.text(0.012, 0.985 - 0.30 / figure.get_figheight(), subtitle, fontsize=9.5, color="#555555", va="top")


def save(figure, folder, name):
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.62 / figure.get_figheight()), w_pad=2.5)
    figure.savefig(folder / f"{name}.png")
    plt.close(figure)


def throughput(folder, summary):
    systems = present(summary)
    figure, axes = panels(
        "Requests per second", "Bars: median of the repetitions. Lines: slowest and fastest repetition.", systems
    )
    top = max(row["tps_max"] for row in summary) / 1000
    for axis, name in zip(axes, ROUNDS):
        rows = of_round(summary, name)
        for place, system in enumerate(systems):
            if system.name in rows:
                throughput_bar(axis, place, system.colour, rows[system.name], top)
        axis.set_xlim(0, top * 1.22)
        axis.set_xlabel("thousand requests/s")
    save(figure, folder, "throughput")


def throughput_bar(axis, place, colour, row, top):
    middle, low, high = (row[field] / 1000 for field in ("tps", "tps_min", "tps_max"))
    axis.barh(place, middle, height=0.62, color=colour)
    axis.plot([low, high], [place, place], color=INK, linewidth=1.4, solid_capstyle="butt")
    axis.plot([low, high], [place, place], color=INK, linestyle="none", marker="|", markersize=7)
    axis.text(max(high, middle) + top * 0.025, place, f"{middle:.1f}", va="center", fontweight="bold")


def latency(folder, summary):
    systems = present(summary)
    figure, axes = panels(
        "Latency of a request",
        "Dot: median request. Ring: 95 of 100 are faster. Bar: 99 of 100 are faster. Logarithmic; each a median of the repetitions.",
        systems,
    )
    for axis, name in zip(axes, ROUNDS):
        rows = of_round(summary, name)
        axis.set_xscale("log")
        for place, system in enumerate(systems):
            if system.name in rows:
                latency_line(axis, place, system.colour, rows[system.name])
        latency_scale(axis, summary)
    save(figure, folder, "latency")


def latency_line(axis, place, colour, row):
    p50, p95, p99 = (row[field] for field in ("p50_ms", "p95_ms", "p99_ms"))
    axis.plot([p50, p99], [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
    axis.plot(p50, place, "o", color=colour, markersize=9)
    axis.plot(p95, place, "o", markerfacecolor="white", markeredgecolor=colour, markeredgewidth=2, markersize=8)
    axis.plot(p99, place, "|", color=colour, markersize=14, markeredgewidth=3)
    axis.annotate(f"{p99:.2f}", (p99, place), xytext=(7, 0), textcoords="offset points", va="center", fontsize=9)


def latency_scale(axis, summary):
    low = min(row["p50_ms"] for row in summary) * 0.7
    high = max(row["p99_ms"] for row in summary) * 2.2
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= tick <= high]
    axis.set_xlim(low, high)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("milliseconds")


def cost(folder, summary):
    """CPU for a request, not CPU in use: a server that does more work in the same time is not the dearer one."""
    systems = present(summary)
    figure, axes = panels(
        "Server CPU for each request",
        "CPU seconds of all the server's processes over requests answered; client CPU is not in it. In grey: memory (PSS) at that time.",
        systems,
    )
    most = max(microseconds(row) for row in summary)
    for axis, name in zip(axes, ROUNDS):
        rows = of_round(summary, name)
        for place, system in enumerate(systems):
            if system.name in rows:
                cost_bar(axis, place, system.colour, rows[system.name], most)
        axis.set_xlim(0, most * 1.65)
        axis.set_xlabel("microseconds")
    save(figure, folder, "cost")


def microseconds(row):
    return row["cpu"] / row["tps"] * 1e6


def cost_bar(axis, place, colour, row, most):
    used = microseconds(row)
    axis.barh(place, used, height=0.62, color=colour)
    axis.text(used + most * 0.03, place, f"{used:.1f}", va="center", fontweight="bold")
    axis.text(most * 1.63, place, f"{row['rss_mb']:.0f} MB", va="center", ha="right", color="#777777", fontsize=9)


PAIRS = (  # what is compared, the system it is taken on, the round, the server's own tool
    ("Redis: PING", "redis", "floor", "redis-benchmark"),
    ("Redis: GET, 80 % hits", "redis", "read", "redis-benchmark"),
    ("Redis: SET", "redis", "set", "redis-benchmark"),
    ("Postgres: SELECT 1", "table_unlogged", "floor", "pgbench"),
    ("table, unlogged: read", "table_unlogged", "read", "pgbench"),
    ("table, unlogged: write", "table_unlogged", "write", "pgbench"),
    ("pgcache, unlogged: read", "pgcache_unlogged", "read", "pgbench"),
    ("pgcache, unlogged: write", "pgcache_unlogged", "write", "pgbench"),
)


def pairs(by_tool):
    """For each pair: label, the best row by the server's own tool, the best row by our client."""
    found = []
    for label, system, name, own in PAIRS:
        best = {
            tool: max(
                (r for r in by_tool if (r["system"], r["round"], r["tool"]) == (system, name, tool)),
                key=lambda row: row["tps"],
                default=None,
            )
            for tool in (own, "client")
        }
        if all(best.values()):
            found.append((label, best[own], best["client"]))
    return found


def tools(folder, by_tool):
    found = pairs(by_tool)
    if not found:
        return
    figure, axis = plt.subplots(figsize=(12, 1.7 + 0.55 * len(found)))
    head(
        figure,
        "Is the client what is measured?",
        "Each request done by the server's own tool (pale) and by the one client that serves both servers (dark); lines: slowest and fastest.",
    )
    top = max(row["tps_max"] for _, *rows in found for row in rows) / 1000
    for place, (_, own, ours) in enumerate(found):
        tool_bar(axis, place - 0.19, own, "#bcc6d1", top)
        tool_bar(axis, place + 0.19, ours, "#3f4d5c", top)
    axis.set_yticks(range(len(found)), [label for label, *_ in found])
    axis.set_ylim(len(found) - 0.4, -0.6)
    axis.set_xlim(0, top * 1.22)
    axis.set_xlabel("thousand requests/s")
    axis.grid(axis="x", color=FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    save(figure, folder, "tools")


def tool_bar(axis, place, row, colour, top):
    middle, low, high = (row[field] / 1000 for field in ("tps", "tps_min", "tps_max"))
    axis.barh(place, middle, height=0.34, color=colour)
    axis.plot([low, high], [place, place], color=SPREAD, linewidth=1.4)
    name = f"{middle:.1f}   {row['tool']}, {row['threads']} thread{'s' * (row['threads'] > 1)}"
    axis.text(max(high, middle) + top * 0.012, place, name, va="center", fontsize=9)
