"""The report: requests a second through HTTP, and who used the cores."""

import json
from statistics import median

import matplotlib

from rounds import charts, table
from rounds.systems import ALL, ROUNDS

LABELS = {system.name: system.label for system in ALL}
COLOURS = {system.name: system.colour for system in ALL}
FIGURES = ("tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu_us", "web_cpu_us", "rss_mb")
HEAD = (
    "round",
    "system",
    "requests/s",
    "min-max",
    "of Redis",
    "mean ms",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "store CPU us",
    "web server CPU us",
    "store MB",
)


def write(plan, rows, facts):
    summary = summarise(rows)
    (plan.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(plan.out, summary)
    lines = [cells(row, summary) for row in sorted(summary, key=order)]
    parts = [
        "# The rounds through a web server",
        asked(plan, rows, facts),
        table.markdown(HEAD, lines),
        "![Requests per second](web.png)",
        READING,
    ]
    (plan.out / "report.md").write_text("\n\n".join(parts) + "\n")


def order(row):
    return ROUNDS.index(row["round"]), list(LABELS).index(row["system"])


def summarise(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["round"], row["system"]), []).append(row)
    return [
        {
            "round": name,
            "system": system,
            "runs": len(group),
            **{field: round(median(row[field] for row in group), 3) for field in FIGURES},
            "tps_min": min(row["tps"] for row in group),
            "tps_max": max(row["tps"] for row in group),
        }
        for (name, system), group in groups.items()
    ]


def cells(row, summary):
    redis = next((r["tps"] for r in summary if (r["round"], r["system"]) == (row["round"], "redis")), None)
    return (
        row["round"],
        LABELS[row["system"]],
        f"{row['tps']:,.0f}",
        table.spread(row),
        f"{row['tps'] / redis:.2f}" if redis else "",
        *(f"{row[name]:.2f}" for name in ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu_us", "web_cpu_us")),
        f"{row['rss_mb']:.0f}",
    )


def asked(plan, rows, system):
    versions = ", ".join(dict.fromkeys(row["version"] for row in rows))
    return f"""A Go web server answers `/get` and `/set` over go-redis and pgx, {plan.connections} connections to the store by
{"TCP" if plan.store.tcp else "unix socket"}; k6 asks it, {plan.users} users without pause, over HTTP. {plan.store.entries:,} entries, values of {plan.store.value_size} bytes; read: 80 %
exist; mixed: 20 % writes; write: 10 % overwrite. {plan.repeats} repetition{"s" * (plan.repeats > 1)} of {plan.seconds:g} s.
{system['system']}, Linux {system['kernel']}, {system['cores']} cores, shared by k6, web server and store. {versions}."""


READING = """CPU is for one request, in microseconds. Published for such a set-up (Postgres 17.6, Redis 8.2, 30 million entries, two minutes a
round): read round, Redis 11,258 and Postgres 7,425 requests/s, 0.66 of Redis. Here k6 and the web server share the cores with
the store: the CPU columns say what each takes, and the rest of the cores is k6's."""


def draw(folder, summary):
    systems = charts.present(summary)
    with matplotlib.rc_context(charts.STYLE):
        figure, axes = charts.panels(
            "Requests per second through a web server", "Bars: median. Lines: slowest and fastest repetition.", systems
        )
        top = max(row["tps_max"] for row in summary) / 1000
        for axis, name in zip(axes, ROUNDS):
            rows = charts.of_round(summary, name)
            for place, system in enumerate(systems):
                if system.name in rows:
                    charts.throughput_bar(axis, place, system.colour, rows[system.name], top)
            axis.set_xlim(0, top * 1.22)
            axis.set_xlabel("thousand requests/s")
        charts.save(figure, folder, "web")
