"""Runs the cases on the systems, one after the other, and writes report.md, the charts and the raw samples."""

import argparse
import json
import time
from pathlib import Path

from rounds import machine, plan

from . import cases, charts
from .load import Run


def main():
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = []
    for case in cases.by_names(cases.CASES, options.cases):
        for system in cases.by_names(cases.SYSTEMS, options.systems):
            runs.append(Run(case, system, options).measure())
            print(f"{time.strftime('%H:%M:%S')}  {case.name}: {system.label}", flush=True)
    (options.out / "runs.json").write_text(json.dumps(runs))
    charts.draw(options.out, runs)
    report = "\n".join([*facts(options), *table(runs)]) + "\n"
    (options.out / "report.md").write_text(report)
    print(report)
    if options.smoke:
        check(runs)


def read_options():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--scale", type=float, default=1.0, help="of all TTLs and of the sweep interval of 10 s")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--cases", default="a,b,c")
    parser.add_argument("--systems", default="worker,off,btree,table")
    parser.add_argument("--out", type=Path, default=plan.ROOT / "build/bench" / time.strftime("expiry-%Y%m%d-%H%M%S"))
    parser.add_argument("--smoke", action="store_true", help="seconds; asserts that it works, no figures")
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.scale, options.cases, options.systems = 6, 0.05, "b", "worker,table"
    return options


def facts(options):
    about = machine.describe()
    return ["# Expiry under churn", "", f"{about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, "
            f"{about['system']}, load at the start {about['load_at_start']:.1f}. {options.seconds} s a run, "
            f"{options.clients} clients, half gets and half sets at full speed, stock settings; TTLs and the sweep "
            f"interval of 10 s times {options.scale}.", ""]  # fmt: skip


def second_half(run, field):
    half = run["samples"][-1]["t"] / 2
    return [sample for sample in run["samples"] if sample["t"] >= half and field in sample]


def room(run):
    """The most that the tables took, over a fresh table of what lived in the last two sweep intervals."""
    return max((charts.total(s) / (s["lived"] * run["fresh_row"]) for s in second_half(run, "lived") if s["lived"]),
               default=0)  # fmt: skip


def table(runs):
    yield "| case | system | sets/s | set p99 | gets/s | get p99 | most MB | of fresh | HOT | longest lag |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for run in runs:
        get, put, last = run["latency"]["get"], run["latency"]["set"], run["samples"][-1]
        most = max(charts.total(sample) for sample in run["samples"]) / charts.MB
        hot = f"{100 * last['hot'] / last['updated']:.0f} %" if last["updated"] else ""
        lag = max((sample["lag"] for sample in second_half(run, "lag")), default=0)
        yield (
            f"| {run['case']} | {run['system']} | {put['per_second']:,.0f} | {put['p99_us'] / 1000:.2f} ms "
            f"| {get['per_second']:,.0f} | {get['p99_us'] / 1000:.2f} ms | {most:,.0f} | {room(run):.2f} x | {hot} "
            f"| {lag:.1f} s |"
        )


def check(runs):
    """What must be true of any run, however short."""
    for run in runs:
        assert run["latency"]["set"]["per_second"] > 0 and run["samples"], run["system"]
        assert run["samples"][-1]["deleted"] > 0, f"{run['system']}: nothing was swept"


main()
