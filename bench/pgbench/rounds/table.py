"""The table in the terminal, and the same cells for the report."""

from .systems import ALL, ROUNDS

HEAD = ("round", "system", "requests/s", "min-max", "of Redis", "p50 ms", "p95 ms", "p99 ms", "CPU", "MB", "hits", "from tier", "tool")
LABELS = {system.name: system.label for system in ALL}


def cells(summary):
    found = {(row["round"], row["system"]): row for row in summary}
    order = [(name, system.name) for name in ROUNDS for system in ALL]
    return [line(found[key], found.get((key[0], "redis"))) for key in order if key in found]


def line(row, redis):
    return (
        row["round"],
        LABELS[row["system"]],
        f"{row['tps']:,.0f}",
        spread(row),
        f"{row['tps'] / redis['tps']:.2f}" if redis else "",
        *(f"{row[name]:.3f}" for name in ("p50_ms", "p95_ms", "p99_ms")),
        f"{row['cpu']:.2f}",
        f"{row['rss_mb']:.0f}",
        f"{row['hit_rate']:.1%}" if row["hit_rate"] else "",
        f"{row['tier_hit_rate']:.1%}" if row.get("tier_hit_rate") is not None else "",
        f"{row['tool']} x{row['threads']}",
    )


def spread(row):
    return f"{row['tps_min'] / 1000:,.1f}-{row['tps_max'] / 1000:,.1f} k"


def text(summary):
    lines = [HEAD, *cells(summary)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(padded(line, widths) for line in lines)


def padded(line, widths):
    left = (0, 1, len(HEAD) - 1)
    return "  ".join(
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(line, widths))
    ).rstrip()


def markdown(head, lines):
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))
