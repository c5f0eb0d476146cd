#!/usr/bin/env -S python3 -B
"""Checks the Grafana dashboard and the alerts: the layout and the words of each panel, PromQL by promtool, and, given
an exporter's output, that every metric that they name exists.

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
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
QUERIES = [target.get("expr", "") for _, target in TARGETS]
METRIC = re.compile(r"\b(pgcache_\w+)(?:\{([^}]*)\})?")
OF_A_CACHE = re.compile(r"pgcache_(cache|table|sweep)_")


def overlap(a, b):
    return all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h")))


def panels():
    for panel in PANELS:
        title, place = panel.get("title"), panel["gridPos"]
        rules = {
            "title": title,
            "description": panel.get("description"),
            "unit": panel["fieldConfig"]["defaults"].get("unit"),
            "place in the grid": place["x"] + place["w"] <= 24,
            "query": panel["targets"] and all(target.get("expr") for target in panel["targets"]),
            "data source of the variable": all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]),
        }
        yield from (f"{title or panel['id']}: no {rule}" for rule, kept in rules.items() if not kept)
    for a, b in combinations(PANELS, 2):
        if a["id"] == b["id"] or overlap(a["gridPos"], b["gridPos"]):
            yield f"{a['title']} and {b['title']} overlap or have the same id"


def selections():
    """Yields queries that ignore the chosen servers, databases or caches, and legends that do not distinguish their
    lines: caches in several databases, and databases on several servers, may have the same name."""
    for panel, target in TARGETS:
        query, legend = target["expr"], target.get("legendFormat", "")
        wanted = set()
        for name, selector in METRIC.findall(query):
            chosen = ["instance", *(["datname", "cache"] if OF_A_CACHE.match(name) else [])]
            yield from (f"{panel['title']}: {name} is not of ${label}" for label in chosen if f'{label}=~"${label}"' not in selector)
            wanted.update(chosen)
        if re.match(r"(sum|max)\(", query):
            wanted = set()  # one line for all
        elif "xid_age" in query:
            wanted = {"instance"}
        for by in re.findall(r"\bby \(([^)]*)\)", query):
            if set(by.split(", ")) != wanted:
                yield f"{panel['title']}: by ({by}), not by {', '.join(sorted(wanted))}"
        yield from (f"{panel['title']}: the legend has no {label}" for label in sorted(wanted) if f"{{{{{label}}}}}" not in legend)


def sources():
    """Yields an error if the variable for the data source does not match the provisioned data source."""
    kinds = [v["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "datasource"]
    if kinds != re.findall(r"^\s+type: (\S+)$", SOURCES, re.M):
        yield f"data sources: the variable is of {kinds}"


def variables():
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(DASHBOARD)))
    yield from (f"${name} is declared or used, not both" for name in sorted(declared ^ used))


def promql():
    """Yields promtool's errors about the queries. Each query becomes a recording rule, because promtool parses
    rules."""
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


found = [*panels(), *selections(), *sources(), *variables(), *promql()]
for file in sys.argv[1:]:
    found += metrics(Path(file).read_text())
print("\n".join(found) or f"{len(PANELS)} panels, {len(QUERIES)} queries are sound")
sys.exit(bool(found))
