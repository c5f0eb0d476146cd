"""Formats tables for Markdown and for the terminal, with a note on how many runs are behind a figure."""

from .systems import LABELS, WORKLOADS

HEAD = ("workload", "system", "requests/s", "min-max", "of Redis", "p50 ms", "p95 ms", "p99 ms", "CPU", "CPU µs", "MB", "hits", "from tier", "tool")
COST_HEAD = ("workload", "system", "server CPU s", "client CPU s", "memory MB", "WAL MB")
ENOUGH = 5  # with fewer repetitions a figure is only an impression


def markdown(head, lines):
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *lines))


def text(head, lines):
    """Formats a table for the terminal: names to the left, figures to the right."""
    lines = [head, *lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def padded(line):
        pairs = enumerate(zip(line, widths))
        return "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in pairs).rstrip()

    return "\n".join(map(padded, lines))


def ordered(summary):
    names = list(LABELS)
    return sorted(summary, key=lambda row: (WORKLOADS.index(row["workload"]), names.index(row["system"])))


def cells(summary):
    redis = {row["workload"]: row["tps"] for row in summary if row["system"] == "redis"}
    return [line(row, redis.get(row["workload"])) for row in ordered(summary)]


def line(row, redis):
    return (
        row["workload"],
        LABELS[row["system"]],
        f"{row['tps']:,.0f}",
        spread(row),
        f"{row['tps'] / redis:.2f}" if redis else "",
        *(f"{row[name]:.3f}" for name in ("p50_ms", "p95_ms", "p99_ms")),
        f"{row['cpu']:.2f}",
        cpu_us(row),
        f"{row['rss_mb']:.0f}",
        f"{row['hit_rate']:.1%}" if row["hit_rate"] else "",
        f"{row['tier_hit_rate']:.1%}" if row.get("tier_hit_rate") is not None else "",
        f"{row['tool']} x{row['threads']}",
    )


def cpu_us(row):
    """Returns the processor time of the server for one request, in microseconds."""
    return f"{row['cpu'] / row['tps'] * 1e6:.1f}"


def spread(row):
    return f"{row['tps_min'] / 1000:,.1f}-{row['tps_max'] / 1000:,.1f} k"


def cost_cells(summary):
    """Returns the cells with the cost of a million requests."""
    for row in ordered(summary):
        wal = row.get("wal_per_write") if row["workload"] == "write" else None
        cpu = (f"{row[name] / row['tps'] * 1e6:.1f}" for name in ("cpu", "client_cpu"))
        wal = "" if wal is None else f"{wal * 1e6 / 1024**2:.0f}"
        yield (row["workload"], LABELS[row["system"]], *cpu, f"{row['rss_mb']:.0f}", wal)


def runs_said(rows, seconds=None):
    """Returns the number and length of runs, for the foot of a chart and the head of a table."""
    runs = {row["runs"] for row in rows}
    many = f"{min(runs)} to {max(runs)}" if len(runs) > 1 else str(*runs)
    each = f" of {seconds:g} s" if seconds else ""
    return f"one run{each}, no spread" if runs == {1} else f"median of {many} runs{each}"


def look(rows):
    runs = min(row["runs"] for row in rows)
    return f"Medians of {runs} runs." if runs >= ENOUGH else f"**A look: {runs} run{'s' * (runs > 1)} each.**"


PAIRS = (  # the label, the system of the measurement, the workload, the server's own tool
    ("Redis: PING", "redis", "baseline", "redis-benchmark"),
    ("Redis: GET, 80 % hits", "redis", "read", "redis-benchmark"),
    ("Redis: SET", "redis", "set", "redis-benchmark"),
    ("Postgres: SELECT 1", "table_unlogged", "baseline", "pgbench"),
    ("table, unlogged: read", "table_unlogged", "read", "pgbench"),
    ("table, unlogged: write", "table_unlogged", "write", "pgbench"),
    ("pgcache, unlogged: read", "pgcache_unlogged", "read", "pgbench"),
    ("pgcache, unlogged: write", "pgcache_unlogged", "write", "pgbench"),
)


def tool_pairs(by_tool):
    """Returns for each pair its label, the best row by the server's own tool, and the best row by the driver of this
    package."""
    found = []
    for label, system, name, own in PAIRS:
        rows = [row for row in by_tool if (row["system"], row["workload"]) == (system, name)]
        best = [max((row for row in rows if row["tool"] == tool), key=lambda row: row["tps"], default=None) for tool in (own, "driver")]
        if all(best):
            found.append((label, *best))
    return found
