"""python3 -m web: each repetition takes every system once; what is in runs.jsonl is not run again."""

import json
import sys
import time

from rounds import machine, servers
from rounds.command import RoundError

from . import k6, plan as plans, report, smoke
from .web_server import WebServer


def main(words):
    plan = plans.from_words(words)
    plan.out.mkdir(parents=True, exist_ok=True)
    facts = machine.describe()
    for repetition in range(plan.repeats):
        for system in plan.systems:
            measure(system, repetition, plan)
    if plan.size == "smoke":
        print("every store answers through the web server")
        return
    (plan.out / "machine.json").write_text(json.dumps(facts, indent=1) + "\n")
    report.write(plan, read(plan), facts)
    print(f"\nreport  {plan.out / 'report.md'}")


def journal(plan):
    return plan.out / "runs.jsonl"


def read(plan):
    return [json.loads(line) for line in journal(plan).read_text().splitlines()] if journal(plan).exists() else []


def measure(system, repetition, plan):
    done = {(row["system"], row["round"], row["repetition"]) for row in read(plan)}
    rounds = [name for name in plan.rounds if (system.name, name, repetition) not in done]
    if not rounds:
        return
    store = servers.of(system, plan.store)
    try:
        with store:
            store.load()
            with WebServer(store, plan) as web:
                rounds_of(web, rounds, repetition, plan)
    finally:
        store.remove()


def rounds_of(web, rounds, repetition, plan):
    if plan.size == "smoke":
        smoke.insist(web, plan)
        return
    for name in rounds:
        row = {"repetition": repetition, "version": web.store.version(), **k6.run(web, name, plan)}
        with journal(plan).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(
            f"{time.strftime('%H:%M:%S')}  {row['system']:<18}{name:<7}{row['tps']:>9,.0f}/s  p99 {row['p99_ms']:.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RoundError as reason:
        sys.exit(f"web: {reason}")
    except KeyboardInterrupt:
        sys.exit("web: stopped")
