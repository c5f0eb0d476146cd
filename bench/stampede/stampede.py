"""Runs the scenarios in a throwaway cluster and writes report.md and summary.json."""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from law import SCENARIOS, amplification, attainable_hit_rate, hit_rate, published_requests
from throwaway import ROOT, Cluster

CLIENT = ROOT / "build/stampede-client/release/stampede-client"
CLUSTER = Cluster("stampede")
MODES = ("lease", "fetch", "none")

SETUP = """
DROP EXTENSION IF EXISTS pgcache CASCADE;
DROP VIEW IF EXISTS products, counters;
DROP FUNCTION IF EXISTS absent_ttl, load_product;
CREATE EXTENSION pgcache;
SELECT cache_create('products', '{ttl} s', 'memory', grace => '{grace}');
SELECT cache_tune('products', negative_ttl => '{absent_ttl} s');
SELECT cache_create('counters', storage => 'memory');
SELECT cache_set('queries', '0', cache => 'counters');
CREATE FUNCTION absent_ttl() RETURNS interval LANGUAGE sql IMMUTABLE AS $$SELECT interval '{absent_ttl} s'$$;
-- The database behind cache_fetch: a pool of {pool} connections, taken in turn, each busy for {latency_ms} ms.
CREATE FUNCTION load_product(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id int := substr(key, 3)::int;
    connection int := cache_incr('queries', cache => 'counters') % {pool};
BEGIN
    PERFORM pg_advisory_lock(connection);
    PERFORM pg_sleep({latency_ms} / 1000.0);
    PERFORM pg_advisory_unlock(connection);
    RETURN CASE WHEN id <= 10000 THEN 'product ' || id END;
END $$;
"""


def measure(scenario, mode: str, seconds: float) -> dict:
    settings = vars(scenario) | {"grace": "0" if mode == "none" else "1 minute"}
    CLUSTER.sql(SETUP.format(**settings))
    place = CLUSTER.address()
    done = subprocess.run(
        [CLIENT, "--socket", place["PGHOST"], "--port", place["PGPORT"], "--mode", mode]
        + ["--clients", str(scenario.clients), "--seconds", str(seconds)]
        + ["--pool", str(scenario.pool), "--latency-ms", str(scenario.latency_ms)],
        capture_output=True, text=True, check=False,
    )
    if done.returncode != 0:
        sys.exit(f"stampede: the client failed:\n{done.stderr}")
    run = json.loads(done.stdout)
    if mode == "fetch":
        run["queries"] = int(CLUSTER.sql("SELECT cache_get('queries', 'counters')"))
    return run | {"scenario": scenario.name, "mode": mode} | judge(scenario, run)


def judge(scenario, run: dict) -> dict:
    rate, queries = run["requests"] / run["seconds"], run["queries"] / run["seconds"]
    return {
        "requests_s": rate,
        "queries_s": queries,
        "capacity_s": scenario.capacity,
        "hit_rate": hit_rate(rate, queries),
        "attainable": attainable_hit_rate(scenario, rate, run["seconds"]),
        "amplification": amplification(scenario, rate),
    }


def median(runs: list[dict]) -> dict:
    """Each figure's median and spread; what must not happen is summed."""
    result = {"scenario": runs[0]["scenario"], "mode": runs[0]["mode"], "runs": len(runs)}
    for name, value in runs[0].items():
        values = [run[name] for run in runs]
        if name in ("errors", "wrong"):
            result[name] = sum(values)
        elif isinstance(value, int | float):
            result[name] = statistics.median(values)
    rates = [run["requests_s"] for run in runs]
    result["spread"] = [min(rates), max(rates)]
    return result


def failures(runs: list[dict]) -> list[str]:
    """What must hold in each run, whatever the machine."""
    found = []
    for run in runs:
        name = f"{run['scenario']}, {run['mode']}"
        if run["errors"]:
            found.append(f"{name}: {run['errors']} errors, the first: {run['first_error']}")
        if run["wrong"]:
            found.append(f"{name}: {run['wrong']} wrong answers")
        # A query that began before the end is counted whole: one round of the pool more.
        allowed = run["capacity_s"] * (run["seconds"] + 1)
        if run["queries"] > allowed:
            found.append(f"{name}: {run['queries']} queries, the pool can answer {allowed:.0f}")
    return found


def machine() -> str:
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores ({model}), {platform.system()} {platform.release()}"


def report(medians: list[dict], seconds: float) -> str:
    lines = [
        "# Cold start and stampede",
        "",
        f"{datetime.date.today()}, {machine()}, {CLUSTER.sql('SHOW server_version')}, {seconds:g} s from an empty cache,",
        f"medians of {medians[0]['runs']}. Client and server share the machine.",
        "",
        "| scenario | mode | requests/s | hit rate | attainable | queries/s | of capacity | amplification | p50 us | p95 us | p99 us | errors | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for scenario in SCENARIOS:
        for row in (row for row in medians if row["scenario"] == scenario.name):
            lines.append(
                f"| {row['scenario']} | {row['mode']} | {row['requests_s']:,.0f} | {row['hit_rate']:.2%} | {row['attainable']:.2%} "
                f"| {row['queries_s']:,.0f} | {row['queries_s'] / row['capacity_s']:.0%} | {row['amplification']:,.1f}x "
                f"| {row['p50_us']:,.0f} | {row['p95_us']:,.0f} | {row['p99_us']:,.0f} | {row['errors']} | {row['wrong']} |"
            )
        if any(row["scenario"] == scenario.name for row in medians):
            published, traffic = scenario.published, published_requests(scenario)
            lines.append(
                f"| {scenario.name} | *published, in process* | {traffic:,.0f} | {published.hit_rate:.2%} "
                f"| {attainable_hit_rate(scenario, traffic, 10):.2%} | {published.queries:,.0f} "
                f"| {published.queries / scenario.capacity:.0%} | {published.amplification:,.0f}x | | | | 0 | |"
            )
    lines += ["", "How to read it: README.md in bench/stampede."]
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--smoke", action="store_true", help="two scenarios, two seconds, only what must hold")
    words.add_argument("--seconds", type=float, default=10)
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--scenarios", default=",".join(s.name for s in SCENARIOS))
    words.add_argument("--modes", default=",".join(MODES))
    words.add_argument("--out", type=Path)
    options = words.parse_args()
    if options.smoke:
        options.seconds, options.repeats, options.scenarios = 2, 1, "cloud,constrained"
    chosen = [s for s in SCENARIOS if s.name in options.scenarios.split(",")]
    CLUSTER.run("remove")
    CLUSTER.run("start", "max_connections = 700", "shared_buffers = 128MB")
    try:
        runs = []
        for scenario in chosen:
            for mode in options.modes.split(","):
                for _ in range(options.repeats):
                    runs.append(measure(scenario, mode, options.seconds))
                    print(f"{scenario.name} {mode}: {runs[-1]['requests_s']:,.0f} requests/s", file=sys.stderr)
        by_case: dict[tuple[str, str], list[dict]] = {}
        for run in runs:
            by_case.setdefault((run["scenario"], run["mode"]), []).append(run)
        medians = [median(case) for case in by_case.values()]
        text = report(medians, options.seconds)
    finally:
        CLUSTER.run("remove")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "report.md").write_text(text)
        (options.out / "summary.json").write_text(json.dumps({"medians": medians, "runs": runs}, indent=1) + "\n")
    print(text)
    if found := failures(runs):
        sys.exit("stampede: " + "\nstampede: ".join(found))


if __name__ == "__main__":
    main()
