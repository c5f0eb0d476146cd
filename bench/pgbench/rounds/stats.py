"""Percentiles, medians and the choice of the best tool: arithmetic only, no files, no servers."""

from collections import Counter
from dataclasses import dataclass
from statistics import median


def percentile(counts, share):
    """The smallest latency that at least `share` of the requests did not exceed (nearest rank)."""
    total = sum(counts.values())
    if total == 0:
        raise ValueError("no latency was recorded")
    wanted = max(1, -(-total * share // 1))  # rounded up
    seen = 0
    for latency in sorted(counts):
        seen += counts[latency]
        if seen >= wanted:
            return latency
    raise AssertionError("the counts changed while they were read")


def count_latencies(lines):
    """A pgbench log: the third field of a line is the transaction's time in microseconds."""
    return Counter(int(line.split(None, 3)[2]) for line in lines)


@dataclass(frozen=True)
class Latency:
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, counts, mean_ms):
        return cls(mean_ms, *(percentile(counts, share) / 1000 for share in (0.50, 0.95, 0.99)))


def summarise(runs):
    """One row for each round, system, tool and thread count: medians over the repetitions, and the spread."""
    groups = {}
    for run in runs:
        groups.setdefault((run["round"], run["system"], run["tool"], run["threads"]), []).append(run)
    return [row(*key, group) for key, group in groups.items()]


def row(round_name, system, tool, threads, group):
    middle = {
        field: round(median(run[field] for run in group), 4)
        for field in ("tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu", "client_cpu", "other_cpu", "rss_mb")
    }
    rates = [run["tps"] for run in group]
    return {
        "round": round_name,
        "system": system,
        **middle,
        "runs": len(group),
        "tps_min": min(rates),
        "tps_max": max(rates),
        "tool": tool,
        "threads": threads,
        **{field: known(group, field) for field in ("hit_rate", "tier_hit_rate", "wal_per_write")},
    }


def known(group, field):
    """The median over the runs that have it."""
    found = [run[field] for run in group if run.get(field) is not None]
    return round(median(found), 4) if found else None


def best(rows):
    """For each round and system the tool and thread count with the highest median."""
    winners = {}
    for candidate in rows:
        key = (candidate["round"], candidate["system"])
        if key not in winners or candidate["tps"] > winners[key]["tps"]:
            winners[key] = candidate
    return list(winners.values())
