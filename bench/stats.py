"""Percentiles, medians and spreads. Only arithmetic: no files, no servers."""

from collections import Counter
from statistics import median


def percentile(counts, share):
    """Returns the smallest latency that at least `share` of the requests did not exceed (nearest rank)."""
    total = sum(counts.values())
    if total == 0:
        raise ValueError("no latency was recorded")
    wanted, seen = max(1, -(-total * share // 1)), 0  # rounded up
    for latency in sorted(counts):
        seen += counts[latency]
        if seen >= wanted:
            return latency
    raise AssertionError("the counts changed while they were read")


def count_latencies(lines):
    """Counts the latencies in a pgbench log: the third field of a line is the transaction's time in microseconds."""
    return Counter(int(line.split(None, 3)[2]) for line in lines)


def latency_of(counts, mean_ms):
    shares = {"p50_ms": 0.50, "p95_ms": 0.95, "p99_ms": 0.99}
    return {"mean_ms": mean_ms, **{name: percentile(counts, share) / 1000 for name, share in shares.items()}}


def in_ms(seen):
    """Converts the driver's microseconds to milliseconds."""
    return {f"{name}_ms": seen[f"{name}_us"] / 1000 for name in ("mean", "p50", "p95", "p99")}


def grouped(rows, keys):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def summarise(rows, keys, fields, of="tps"):
    """Returns one row for each group: medians over the repetitions that have the field, and the spread of one of
    them."""
    return [
        {
            **dict(zip(keys, key)),
            **{name: known(group, name) for name in fields},
            "runs": len(group),
            f"{of}_min": min(row[of] for row in group),
            f"{of}_max": max(row[of] for row in group),
        }
        for key, group in grouped(rows, keys).items()
    ]


def known(group, name):
    found = [row[name] for row in group if row.get(name) is not None]
    return round(median(found), 5) if found else None


def best(rows):
    """Returns for each workload and system the tool and thread count with the highest median."""
    winners = {}
    for row in sorted(rows, key=lambda row: -row["tps"]):
        winners.setdefault((row["workload"], row["system"]), row)
    return [row for row in rows if any(row is winner for winner in winners.values())]


def middle(values):
    """Returns median, least and most."""
    return median(values), min(values), max(values)


def spread(values):
    """Returns median, least and most by name."""
    return dict(zip(("median", "least", "most"), middle(values)))
