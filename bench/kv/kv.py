"""Runs the loads on each system and writes report.md and summary.json. What the folder of results has is not run again."""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from plan import LOADS, SYSTEMS, Load
from servers import Etcd, Postgres, has_etcd
from throwaway import ROOT

CLIENT = ROOT / "build/bench-kv/load"


def measure(server, system: str, load: Load) -> dict:
    server.prepare(system, load.name == "watchers")
    words = ["--load", load.name, "--clients", load.clients, "--operations", load.operations, "--seconds", load.seconds]
    done = subprocess.run(
        [str(word) for word in (CLIENT, *server.where(), *words)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"kv: the client failed ({system}, {load.name}):\n{done.stderr}")
    run = json.loads(done.stdout)
    known = {"system": system, "load": load.name, "size": load.size, "version": server.version()}
    return run | known | {"rate": run["operations"] / run["seconds"]}


def failures(runs: list[dict]) -> list[str]:
    """What must hold in each run, whatever the machine."""
    found = []
    for run in runs:
        name = f"{run['load']} on {run['system']}"
        if run["errors"]:
            found.append(f"{name}: {run['errors']} errors, the first: {run['first_error']}")
        if run["wrong"]:
            found.append(f"{name}: {run['wrong']} wrong answers")
        if run.get("lost"):
            found.append(f"{name}: {run['lost']} events were lost")
        if not run["operations"]:
            found.append(f"{name}: nothing was done")
    return found


def median(runs: list[dict]) -> dict:
    """Each figure's median and the spread of the rates; what must not happen is summed."""
    result = {"load": runs[0]["load"], "system": runs[0]["system"], "runs": len(runs), "version": runs[0]["version"]}
    for name in ("rate", "mean_ms", "p50_ms", "p95_ms", "p99_ms"):
        result[name] = statistics.median(run[name] for run in runs)
    for name in ("errors", "wrong", "lost"):
        result[name] = sum(run.get(name, 0) for run in runs)
    rates = [run["rate"] for run in runs]
    return result | {"spread": [min(rates), max(rates)]}


def machine() -> str:
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores ({model}), {platform.system()} {platform.release()}"


def label(system: str) -> str:
    return system if system == "etcd" else f"pgcache, {system}"


def report(medians: list[dict], loads: list[Load]) -> str:
    versions = ", ".join(sorted({row["version"] for row in medians}))
    lines = [
        "# Key-value store loads",
        "",
        f"{datetime.date.today()}, {machine()}; {versions}; medians of {min(row['runs'] for row in medians)}.",
        "Client and server share the machine; every commit of a logged cache and of etcd goes to the disk.",
    ]
    for load in loads:
        length = f"{load.seconds:g} s" if load.seconds else ""
        lines += ["", f"## {load.title}{length and ', '}{length}", ""]
        lines += [f"| system | {'events' if load.name == 'watchers' else 'operations'}/s | spread | mean ms | p50 ms | p95 ms | p99 ms | errors | wrong | lost |"]
        lines += ["|---|---|---|---|---|---|---|---|---|---|"]
        for row in (row for row in medians if row["load"] == load.name):
            low, high = row["spread"]
            lines.append(
                f"| {label(row['system'])} | {row['rate']:,.0f} | {low:,.0f} to {high:,.0f} | {row['mean_ms']:,.2f} | {row['p50_ms']:,.2f} "
                f"| {row['p95_ms']:,.2f} | {row['p99_ms']:,.2f} | {row['errors']} | {row['wrong']} | {row['lost']} |"
            )
        lines += ["", f"Published: {load.published}{load.etcd and '; for etcd v3 '}{load.etcd}."]
    lines += ["", "How to read it: README.md in bench/kv."]
    return "\n".join(lines) + "\n"


def done_before(out: Path | None) -> list[dict]:
    path = out and out / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def run_all(options, loads: list[Load]) -> list[dict]:
    """In the order of the systems, the repetitions of one load one after the other."""
    before, runs = done_before(options.out), []
    for systems in (("memory", "unlogged", "logged"), ("etcd",)):
        todo = []
        for system in (system for system in systems if system in options.systems):
            for load in (load for load in loads if load.runs_on(system)):
                known = [run for run in before if (run["system"], run["size"]) == (system, load.size)]
                runs += known[: options.repeats]
                todo += [(system, load)] * (options.repeats - len(known))
        if todo:
            with (Etcd if systems == ("etcd",) else Postgres)() as server:
                for system, load in todo:
                    run = measure(server, system, load)
                    keep(options.out, run)
                    runs.append(run)
    return runs


def keep(out: Path | None, run: dict) -> None:
    print(f"{run['load']} on {run['system']}: {run['rate']:,.0f}/s, p99 {run['p99_ms']:.1f} ms", flush=True)
    # A run that failed is run again.
    if out and not failures([run]):
        with open(out / "runs.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")


def read_options():
    words = argparse.ArgumentParser(prog="bench/kv/run.sh", description=__doc__)
    words.add_argument("--smoke", action="store_true", help="seconds; only what must hold")
    words.add_argument("--quick", action="store_true", help="one run, those by time 3 s each")
    words.add_argument("--seconds", type=float, default=30, help="at most, for loads by time")
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--systems", default=",".join(SYSTEMS))
    words.add_argument("--loads", default=",".join(load.name for load in LOADS))
    words.add_argument("--out", type=Path)
    options = words.parse_args()
    if options.quick:
        options.seconds, options.repeats = 3, 1
    if options.smoke:
        options.repeats = 1
    options.systems = options.systems.split(",")
    if not has_etcd():
        options.systems = [system for system in options.systems if system != "etcd"]
    if not set(options.systems) & set(SYSTEMS):
        words.error(f"nothing to measure: --systems takes {', '.join(SYSTEMS)}, and etcd must be there")
    return options


def main() -> None:
    options = read_options()
    names = options.loads.split(",")
    loads = [load.shrunk() if options.smoke else load.shortened(options.seconds) for load in LOADS if load.name in names]
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    runs = run_all(options, loads)
    medians = [
        median(case)
        for load in loads
        for system in SYSTEMS
        if (case := [run for run in runs if (run["load"], run["system"]) == (load.name, system)])
    ]
    text = report(medians, loads)
    if options.out:
        (options.out / "report.md").write_text(text)
        (options.out / "summary.json").write_text(json.dumps(medians, indent=1) + "\n")
    print(text)
    if found := failures(runs):
        sys.exit("kv: " + "\nkv: ".join(found))


if __name__ == "__main__":
    main()
