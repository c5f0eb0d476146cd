"""python3 -m growth: every axis, every system; what is in runs.jsonl is not run again."""

import argparse
import json
import sys
import time
from pathlib import Path

from rounds import machine, plan as plans
from rounds.check import insist as must
from rounds.command import RoundError

from . import axes, points, report


def main(words):
    options = read_options(words)
    options.out.mkdir(parents=True, exist_ok=True)
    for repetition in range(options.repeats):
        for axis in options.axes:
            for system in axis.of_size(options.size):
                follow(axis, system, repetition, options)
    rows = read(options)
    if options.size == "smoke":
        for axis in options.axes:
            found = {row["value"] for row in rows if row["axis"] == axis.name and row["tps"] > 0}
            must(found == set(values(axis, options)), f"{axis.name}: points are missing, only {found} are there")
    (options.out / "machine.json").write_text(json.dumps(machine.describe(), indent=1) + "\n")
    report.write(options, rows)
    print(f"\nreport  {options.out / 'report.md'}")


def values(axis, options):
    return [value for value in getattr(axis, options.size) if axis.name != "entries" or value <= options.most_entries]


def journal(options):
    return options.out / "runs.jsonl"


def read(options):
    return [json.loads(line) for line in journal(options).read_text().splitlines()] if journal(options).exists() else []


def follow(axis, system, repetition, options):
    done = {
        row["value"]
        for row in read(options)
        if (row["axis"], row["system"], row["repetition"]) == (axis.name, system, repetition)
    }
    todo = [value for value in values(axis, options) if value not in done]
    if not todo:
        return
    for row in points.run(axis, todo, system, options):
        row = {"axis": axis.name, "repetition": repetition, **row}
        with journal(options).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(
            f"{time.strftime('%H:%M:%S')}  {axis.name:<8}{row['value']:>11,} {axis.unit:<8}{system:<18}{row['round']:<6}{row['tps']:>10,.0f}/s",
            flush=True,
        )


def read_options(words):
    parser = argparse.ArgumentParser(prog="run.sh", description="How cost grows.")
    parser.add_argument(
        "--quick", action="store_const", dest="size", const="quick", help="few points, one short run each"
    )
    parser.add_argument("--smoke", action="store_const", dest="size", const="smoke", help="asserts, no figures")
    parser.add_argument("--axes", help="comma separated (all)")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--repeats", type=int)
    parser.add_argument(
        "--most-entries",
        type=int,
        default=30_000_000,
        help="leave out larger points (30000000: 12 GB of memory, 20 of disk)",
    )
    parser.add_argument("--out", type=Path)
    parser.set_defaults(size="full")
    options = parser.parse_args(words)
    size = axes.SIZES[options.size]
    options.seconds, options.repeats = options.seconds or size["seconds"], options.repeats or size["repeats"]
    options.entries = size["entries"]
    options.axes = options.axes or size.get("axes") or ",".join(axis.name for axis in axes.AXES)
    options.out = (options.out or plans.ROOT / "build/bench" / time.strftime("growth-%Y%m%d-%H%M%S")).resolve()
    try:
        options.axes = axes.by_names(options.axes.split(","))
    except KeyError as unknown:
        parser.error(f"no axis is called {unknown}")
    return options


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RoundError as reason:
        sys.exit(f"growth: {reason}")
    except KeyboardInterrupt:
        sys.exit("growth: stopped")
