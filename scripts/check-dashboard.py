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
DASHBOARD = DOCKER / "grafana" / "dashboards" / "pgcache.json"
ALERTS = DOCKER / "prometheus" / "alerts.yml"
SOURCES = DOCKER / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
METRIC = re.compile(r"\b(?:pgcache_\w+|pg_up)\b")


def overlap(one, other):
    a, b = one["gridPos"], other["gridPos"]
    return (
        a["x"] < b["x"] + b["w"]
        and b["x"] < a["x"] + a["w"]
        and a["y"] < b["y"] + b["h"]
        and b["y"] < a["y"] + a["h"]
    )


def panel_faults(panels, source):
    for panel in panels:
        title = panel.get("title") or f"panel {panel.get('id')}"
        if not panel.get("title") or not panel.get("description"):
            yield f"{title}: no title or no description"
        if not panel["fieldConfig"]["defaults"].get("unit"):
            yield f"{title}: no unit"
        if panel["gridPos"]["x"] + panel["gridPos"]["w"] > 24:
            yield f"{title}: wider than the grid"
        for target in panel.get("targets") or [{}]:
            if not target.get("expr"):
                yield f"{title}: a target without a query"
            elif target["datasource"]["uid"] != source:
                yield f"{title}: a data source that is not provisioned"
    for one, other in combinations(panels, 2):
        if one["id"] == other["id"]:
            yield f"{one['title']} and {other['title']} have the same id"
        if overlap(one, other):
            yield f"{one['title']} and {other['title']} overlap"


def variable_faults(dashboard):
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$(?!__)(\w+)", json.dumps(dashboard)))
    for name in sorted(declared ^ used):
        yield f"${name} is declared or used, not both"


def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def promql_faults(queries):
    """A recording rule for each query: promtool parses them all."""
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        check = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
    if check.returncode != 0:
        yield check.stderr.strip()


def missing_metrics(queries, exported):
    there = set(METRIC.findall(exported))
    asked = set(METRIC.findall("\n".join(queries)))
    for metric in sorted(asked - there):
        yield f"{metric} is asked for, and the exporter does not have it"


def main():
    dashboard = json.loads(DASHBOARD.read_text())
    source = re.search(r"^\s*uid: (\S+)$", SOURCES.read_text(), re.MULTILINE).group(1)
    queries = expressions(dashboard)
    faults = [
        *panel_faults(dashboard["panels"], source),
        *variable_faults(dashboard),
        *promql_faults(queries),
    ]
    if len(sys.argv) > 1:
        alerts = re.findall(r"^\s*expr: (.*(?:\n {10}.*)*)", ALERTS.read_text(), re.MULTILINE)
        faults += missing_metrics(queries + alerts, Path(sys.argv[1]).read_text())
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{len(dashboard['panels'])} panels, {len(queries)} queries are sound")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
