"""python3 -m limit: every case, every system, one after the other; what is in runs.jsonl is not run again."""

import argparse
import json
import sys
import time
from pathlib import Path

from rounds import machine, plan as plans
from rounds.command import RoundError

from . import cases, measure, report, systems

SIZES = {
    "full": {"scale": 1, "repeats": 3, "systems": [system.name for system in systems.SYSTEMS]},
    "quick": {"scale": 1, "repeats": 1, "systems": systems.QUICK},
    "smoke": {"scale": 16, "repeats": 1, "systems": systems.SMOKE, "cases": ["100MiB"]},
}


def main(words):
    options = read_options(words)
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.out / "runs.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    done = {(row["case"], row["system"], row["repetition"]) for row in rows}
    for repetition, case, system in wanted(options):
        if (case.name, system.name, repetition) in done:
            continue
        row = {"repetition": repetition, **measure.run(case, system, plan_for(case, options))}
        rows.append(row)
        with journal.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        say(row, system)
    conclude(options, rows)


def wanted(options):
    return [
        (repetition, case.scaled(options.scale), system)
        for repetition in range(options.repeats)
        for case in options.cases
        for system in options.systems
    ]


def plan_for(case, options):
    words = ["--clients", str(options.clients), "--tier", str(case.limit_mb), "--value-size", str(case.value_size)]
    return plans.from_words([*words, "--entries", str(case.keys), "--out", str(options.out)])


def say(row, system):
    print(
        f"{time.strftime('%H:%M:%S')}  {row['case']:<14}{system.label:<38}{row['hit_rate']:.2%} hits, hot "
        f"{row['hot_hit_rate']:.2%}, cache {row['cache_mb']:,.0f} MB, server {row['server_mb']:,.0f} MB, "
        f"{row['hits_per_second']:,} hits/s",
        flush=True,
    )


def conclude(options, rows):
    facts = {"machine": machine.describe(), "scale": options.scale, "clients": options.clients}
    (options.out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    if options.size == "smoke":
        report.insist(rows)
    report.write(options, rows, facts)
    print(f"\nreport  {options.out / 'report.md'}")


def read_options(words):
    parser = argparse.ArgumentParser(prog="run.sh", description="Hit rate under a memory limit.")
    parser.add_argument(
        "--quick", action="store_const", dest="size", const="quick", help="one pass over the essential systems"
    )
    parser.add_argument(
        "--smoke", action="store_const", dest="size", const="smoke", help="seconds; asserts, no figures"
    )
    parser.add_argument("--cases", help="of 2GiB, 100MiB, and sizes of values in bytes, in 64 MiB")
    parser.add_argument("--systems", help="comma separated, as in limit/systems.py")
    parser.add_argument("--scale", type=int, help="divides limit and keys; 1 is the published size")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--out", type=Path)
    parser.set_defaults(size="full")
    options = parser.parse_args(words)
    size = SIZES[options.size]
    options.scale, options.repeats = options.scale or size["scale"], options.repeats or size["repeats"]
    options.out = (options.out or plans.ROOT / "build/bench" / time.strftime("hit_rate-%Y%m%d-%H%M%S")).resolve()
    try:
        named = options.cases.split(",") if options.cases else size.get("cases")
        options.cases = cases.by_names(named) if named else cases.CASES
        options.systems = systems.by_names(options.systems.split(",") if options.systems else size["systems"])
    except KeyError as unknown:
        parser.error(f"nothing is called {unknown}")
    return options


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RoundError as reason:
        sys.exit(f"hit_rate: {reason}")
    except KeyboardInterrupt:
        sys.exit("hit_rate: stopped")
