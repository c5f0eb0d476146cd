"""Runs the cases on the systems, one after the other, and writes report.md, the charts and the raw samples."""

import argparse
import json
import time
from pathlib import Path
from statistics import median

from rounds import machine, plan

from . import cases, charts
from .load import Run


def main():
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    about, runs = machine.describe(), []
    for case, seconds in zip(cases.by_names(cases.CASES, options.cases), options.seconds):
        for system in cases.by_names(cases.SYSTEMS, options.systems):
            runs.append(Run(case, system, seconds, options).measure())
            print(f"{time.strftime('%H:%M:%S')}  {case.name}: {system.label}", flush=True)
            report = write(options, about, runs)
    print(report)
    if options.smoke:
        check(runs)


def write(options, about, runs):
    """After each run, so that an hour's figures outlive what stops the next."""
    (options.out / "runs.json").write_text(json.dumps(runs))
    charts.draw(options.out, runs)
    report = "\n".join([*facts(options, about, runs), *table(runs)]) + "\n"
    (options.out / "report.md").write_text(report)
    return report


def read_options():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--seconds", default="600", help="of a run; or one number for each case")
    parser.add_argument("--scale", type=float, default=1.0, help="of all TTLs and of the sweep interval of 10 s")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--cases", default="a,b,c,d")
    parser.add_argument("--systems", default="worker,off,btree,table")
    parser.add_argument("--out", type=Path, default=plan.ROOT / "build/bench" / time.strftime("expiry-%Y%m%d-%H%M%S"))
    parser.add_argument("--smoke", action="store_true", help="seconds; asserts that it works, no figures")
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.scale, options.cases, options.systems = "6", 0.05, "b", "worker,table"
    options.seconds = [int(number) for number in options.seconds.split(",")]
    asked = len(options.cases.split(","))
    if len(options.seconds) == 1:
        options.seconds *= asked
    if len(options.seconds) != asked:
        parser.error(f"--seconds: one number, or one for each of the {asked} cases")
    return options


def facts(options, about, runs):
    return ["# Expiry under churn", "", f"{about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, "
            f"{about['system']}, {runs[0]['server']}, load at the start {about['load_at_start']:.1f}. "
            f"{options.clients} clients, half gets and half sets at full speed, stock settings; TTLs and the sweep "
            f"interval of 10 s times {options.scale}.", ""]  # fmt: skip


def second_half(run, field):
    half = run["samples"][-1]["t"] / 2
    return [sample for sample in run["samples"] if sample["t"] >= half and field in sample]


def room(run):
    """The most that the tables took, over a fresh table of what lived in the last two sweep intervals.
    Sizes are seen more often than rows are counted: between two counts the lesser holds."""
    counts = second_half(run, "lived")
    spans = [(one["t"], other["t"], min(one["lived"], other["lived"])) for one, other in zip(counts, counts[1:])]
    return max((charts.total(s) / (lived * run["fresh_row"]) for since, until, lived in spans if lived
                for s in run["samples"] if since <= s["t"] <= until), default=0)  # fmt: skip


def p99(latency):
    slices = latency["p99_us_of_slices"]
    return f"{latency['p99_us'] / 1000:.2f} ({min(slices) / 1000:.2f}-{max(slices) / 1000:.2f}) ms"


def table(runs):
    yield "| case | system | s | sets/s | set p99 | gets/s | get p99 | live | most MB | of fresh | HOT | longest lag |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for run in runs:
        get, put, last = run["latency"]["get"], run["latency"]["set"], run["samples"][-1]
        most = max(charts.total(sample) for sample in run["samples"]) / charts.MB
        hot = f"{100 * last['hot'] / last['updated']:.0f} %" if last["updated"] else ""
        counts = second_half(run, "live")
        lag = max((sample["lag"] for sample in counts), default=0)
        live = median(sample["live"] for sample in counts) if counts else 0
        yield (
            f"| {run['case']} | {run['system']} | {run['seconds']} | {put['per_second']:,.0f} | {p99(put)} "
            f"| {get['per_second']:,.0f} | {p99(get)} | {live:,.0f} | {most:,.0f} | {room(run):.2f} x | {hot} "
            f"| {lag:.1f} s |"
        )


def check(runs):
    """What must be true of any run, however short."""
    for run in runs:
        assert run["latency"]["set"]["per_second"] > 0 and run["samples"], run["system"]
        assert run["samples"][-1]["deleted"] > 0, f"{run['system']}: nothing was swept"
        assert room(run) > 0, f"{run['system']}: no room was measured"


main()
