"""What `make test` wants to know: every system answers every round, and the summary keeps its promises.

That reads hit and writes arrive is insisted on in every run, large or small: see check.py.
"""

from .check import insist as must
from .results import PROMISED
from .systems import ROUNDS


def insist(plan, summary, results):
    found = {(row["round"], row["system"]): row for row in summary}
    for system in plan.systems:
        must(results.facts[system.name].get("check"), f"{system.name} was not checked")
        for name in ROUNDS:
            must((name, system.name) in found, f"{system.name} has no figure for the round {name}")
    for row in summary:
        insist_row(row)
    # One run is shorter than the clock of CPU time may tick on a busy machine; all of them are not.
    must(sum(row["cpu"] for row in summary) > 0, "no server used any CPU")


def insist_row(row):
    name = f"{row['system']}, {row['round']}"
    missing = [field for field in PROMISED if row.get(field) is None]
    must(not missing, f"{name}: summary.json lacks {missing}")
    must(row["tps"] > 0 and row["rss_mb"] > 0, f"{name}: a figure is zero")
    must(0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"], f"{name}: percentiles are out of order")
