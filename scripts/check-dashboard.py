#!/usr/bin/env -S python3 -B
"""Checks the Grafana dashboard and the alerts: layout and words of each panel, PromQL by promtool, and,
given what an exporter says, that every metric they name is there.

Usage: check-dashboard.py [FILE with the exporter's metrics]
"""

import json
import re
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path

DOCKER = Path(__file__).resolve().parent.parent / "docker"
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/pgcache.json").read_text())
ALERTS = (DOCKER / "prometheus/alerts.yml").read_text()
SOURCES = (DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text()
PANELS = DASHBOARD["panels"]
QUERIES = [target.get("expr", "") for panel in PANELS for target in panel["targets"]]


def overlap(a, b):
    return all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h")))


def panels(source):
    for panel in PANELS:
        title, place = panel.get("title"), panel["gridPos"]
        rules = {
            "title": title,
            "description": panel.get("description"),
            "unit": panel["fieldConfig"]["defaults"].get("unit"),
            "place in the grid": place["x"] + place["w"] <= 24,
            "query": panel["targets"] and all(target.get("expr") for target in panel["targets"]),
            "provisioned data source": all(target["datasource"]["uid"] == source for target in panel["targets"]),
        }
        yield from (f"{title or panel['id']}: no {rule}" for rule, kept in rules.items() if not kept)
    for a, b in combinations(PANELS, 2):
        if a["id"] == b["id"] or overlap(a["gridPos"], b["gridPos"]):
            yield f"{a['title']} and {b['title']} overlap or have the same id"


def variables():
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(?!__)(\w+)", json.dumps(DASHBOARD)))
    yield from (f"${name} is declared or used, not both" for name in sorted(declared ^ used))


def promql():
    """A recording rule for each query: promtool parses them all."""
    queries = (query.replace("$__rate_interval", "5m") for query in QUERIES)
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        check = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
    if check.returncode != 0:
        yield check.stderr.strip()


def metrics(exported):
    alerts = re.findall(r"^\s*expr: (.*(?:\n {10}.*)*)", ALERTS, re.M)
    asked, there = (set(re.findall(r"\b(?:pgcache_\w+|pg_up)\b", text)) for text in ("\n".join(QUERIES + alerts), exported))
    yield from (f"{metric} is asked for, and the exporter does not have it" for metric in sorted(asked - there))


found = [*panels(re.search(r"^\s*uid: (\S+)$", SOURCES, re.M).group(1)), *variables(), *promql()]
for file in sys.argv[1:]:
    found += metrics(Path(file).read_text())
print("\n".join(found) or f"{len(PANELS)} panels, {len(QUERIES)} queries are sound")
sys.exit(bool(found))
