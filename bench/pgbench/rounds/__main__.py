"""python3 -m rounds: the whole of a run, from the options to the report."""

import sys
import time

from . import charts, check, jobs, machine, measure, plan as plans, report, servers, smoke, table
from .command import RoundError
from .results import Results


def main(words):
    plan = plans.from_words(words)
    results = Results(plan)
    results.facts.setdefault("machine", machine.describe())
    results.facts["entries"] = plan.entries
    parts = [servers.of(system, plan) for system in plan.systems]
    try:
        for repetition in range(plan.repeats):
            for server in parts:
                if [repetition, server.system.name] not in results.ended:
                    measure_system(server, repetition, results)
                    results.end(repetition, server.system.name)
    finally:
        for server in parts:
            server.remove()
    conclude(plan, results)


def measure_system(server, repetition, results):
    """One server is up at a time, so that what it costs is its own."""
    plan, system = server.plan, server.system
    say(f"{repetition + 1}/{plan.repeats}  {system.label}: loading {plan.entries:,} entries")
    with server:
        server.load()
        check.preload(server)
        facts = {"disk_mb": round(server.disk_mb(), 1)}
        for job in jobs.for_system(system, plan, repetition):
            measure_job(server, job, repetition, results)
        if repetition == 0:
            facts |= {"version": server.version(), "settings": server.settings()}
            facts["check"] = check.system(server)
        if system.is_redis:
            facts["snapshots"] = server.snapshots()
        results.facts.setdefault(system.name, {}).update(facts)


def measure_job(server, job, repetition, results):
    before = server.entries() if job.round == "write" else None
    row, result, stdout = measure.run(server, job)
    check.timed_run(server, job, result)
    check.growth(server, job, result, before)
    results.add(repetition, row, result, stdout)
    say(f"      {job.round:<12}{job.tool:>16} x{job.threads} {row['tps']:>11,.0f}/s   mean {row['mean_ms']:.3f} ms")


def conclude(plan, results):
    summary, by_tool = results.finish()
    if plan.size == "smoke":
        smoke.insist(plan, summary, results)
    if plan.charts:
        charts.draw(plan.out, summary, by_tool)
    report.write(plan, summary, by_tool, results.facts)
    print()
    print(table.text(summary))
    print()
    if (others := results.facts["other_cpu"]["median"]) > 0.2:
        print(
            f"Other programs took {others} cores meanwhile: the figures are lower than they would be on an idle machine.\n"
        )
    if plan.charts:
        print(f"chart        {plan.out / 'throughput.png'}")
    print(f"report       {plan.out / 'report.md'}")
    print(f"raw results  {plan.out / 'raw.tar.gz'}, {plan.out / 'summary.json'}")


def say(text):
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RoundError as reason:
        sys.exit(f"rounds: {reason}")
    except KeyboardInterrupt:
        sys.exit("rounds: stopped")
