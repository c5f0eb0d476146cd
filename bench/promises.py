"""Builds the table of the ratios that pgcache promises, with goal, aim and measured value, from the summaries of the
tier and of the hit rates."""

from .base import read_json
from .tables import markdown

HIT_RATES = (
    ("2GiB", "hit rate at 2 GiB with 525,312-byte values, per byte of the cache's memory", 0.74, 0.79),
    ("100MiB", "hit rate at 100 MiB with 512-byte values, likewise", 0.66, 0.70),
)
HEAD = ("what", "must", "aim", "measured", "spread", "")


def section(out):
    lines = [cells(row) for row in rows(out)]
    if not lines:
        return ""
    return f"## What was promised, and what came out\n\n{ran(read_json(out / 'tier/summary.json'))}\n\n{markdown(HEAD, lines)}"


def ran(tier):
    if not tier:
        return ""
    return f"""Ratios within one run, medians of {tier["runs"]}; unix socket, {tier["clients"]} clients, prepared statements, {tier["entries"]:,} keys,
37-byte values; {", ".join(tier["versions"])}. Hit rates as below. [Details](tier/report.md)."""


def missed(out):
    return [
        f"- {row['what']}: {text(row, 'median')}, below the promised {text(row, 'must')}"
        for row in rows(out)
        if verdict(row) == "missed"
    ]


def rows(out):
    ratios = [row for name in ("instructions", "tier") for row in read_json(out / name / "summary.json", {"ratios": []})["ratios"]]
    return [*ratios, *hit_rates(read_json(out / "hit_rate/summary.json", []))]


def hit_rates(summary):
    for case, what, must, aim in HIT_RATES:
        for row in summary:
            if (row["case"], row["system"]) == (case, "pgcache_memory"):
                worth = row["per_cache_memory"] / row["hit_rate"]
                spread = {"least": row["hit_rate_min"] * worth, "most": row["hit_rate_max"] * worth}
                yield {"what": what, "must": must, "aim": aim, "median": row["per_cache_memory"], **spread, "share": True}
                server = {"median": row["per_server_memory"], "least": None, "most": None}
                yield {"what": "the same per byte of the whole server's memory", "must": None, "aim": None, **server, "share": True}


def is_cost(row):
    return row.get("low") or in_ns(row)


def in_ns(row):
    return "ns" in row["what"].split()


def verdict(row):
    """Returns the verdict on a figure: costs should be low, everything else high."""
    if row["must"] is None:
        return ""
    sign = -1 if is_cost(row) else 1
    measured, must, aim = (sign * row[name] for name in ("median", "must", "aim"))
    return "reached" if measured >= aim else "enough" if measured >= must else "missed"


def cells(row):
    spread = "" if row["least"] is None else f"{text(row, 'least')} to {text(row, 'most')}"
    return row["what"], text(row, "must"), text(row, "aim"), f"**{text(row, 'median')}**", spread, verdict(row)


def text(row, name):
    value = row[name]
    if value is None:
        return ""
    if row.get("share"):
        return f"{value:.1%}"
    return f"{value:+.0f} ns" if in_ns(row) else f"{value:.2f}"
