"""The ratios that pgcache promises, as a table of must, aim and measured. Each comes from tier.json or a hit-rate summary."""

import json

from rounds import table

HIT_RATES = (
    ("2GiB", "hit rate at 2 GiB with 525,312-byte values, per byte of the cache's memory", 0.74, 0.79),
    ("100MiB", "hit rate at 100 MiB with 512-byte values, likewise", 0.66, 0.70),
)
HEAD = ("what", "must", "aim", "measured", "spread", "")


def section(out):
    lines = [cells(row) for row in rows(out)]
    if not lines:
        return ""
    return f"""## What was promised, and what came out

{ground(out)}

{table.markdown(HEAD, lines)}"""


def ground(out):
    path = out / "tier" / "tier.json"
    if not path.exists():
        return ""
    tier = json.loads(path.read_text())
    return f"""Ratios within one run, medians of {len(tier["rows"])}; unix socket, {tier["clients"]} clients, prepared statements, {tier["entries"]:,} keys,
37-byte values; {", ".join(tier["versions"])}. Hit rates as below. [Details](tier/tier.md)."""


def missed(out):
    return [
        f"- {row['what']}: {text(row, 'median')}, below the promised {text(row, 'must')}"
        for row in rows(out)
        if verdict(row) == "missed"
    ]


def rows(out):
    return [*ratios(out), *hit_rates(out)]


def ratios(out):
    path = out / "tier" / "tier.json"
    return json.loads(path.read_text())["ratios"] if path.exists() else []


def hit_rates(out):
    found = []
    path = out / "hit_rate" / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else []
    for case, what, must, aim in HIT_RATES:
        for row in summary:
            if (row["case"], row["system"]) == (case, "pgcache_memory"):
                found += of_case(row, what, must, aim)
    return found


def of_case(row, what, must, aim):
    worth = row["per_cache_memory"] / row["hit_rate"]
    cache = {"median": row["per_cache_memory"], "least": row["least"] * worth, "most": row["most"] * worth}
    server = {"median": row["per_server_memory"], "least": None, "most": None}
    return [
        {"what": what, "must": must, "aim": aim, **cache, "share": True},
        {"what": "the same per byte of the whole server's memory", "must": None, "aim": None, **server, "share": True},
    ]


def is_cost(row):
    return "ns" in row["what"].split()


def verdict(row):
    """Costs are to be low, everything else high."""
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
    return f"{value:+.0f} ns" if is_cost(row) else f"{value:.2f}"
