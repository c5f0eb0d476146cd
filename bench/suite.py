"""`make bench`: runs the parts one after the other, the most important first, and builds the page. Finished parts are
not repeated.

A part is one call of a workload; its report.md becomes a section of the page.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import page
from .base import ROOT, machine, read_json, say, write_json
from .systems import OF_EACH_KIND

QUICK_BUDGET = 50.0


@dataclass(frozen=True)
class Part:
    name: str
    workload: str
    title: str
    options: str
    minutes: float  # a guess, on two idle cores

    @property
    def command(self):
        return f"bench/run.sh {self.workload} {self.options}".rstrip()


def workloads(name, title, minutes, options=""):
    return Part(f"workloads-{name}", "workloads", title, options, minutes)


DRIVER_ONLY = "--tools driver --no-charts"
# Redis stores a gigabyte of large values a second. So runs are short, and the tier has room for the values that they
# add.
VARIATIONS = (
    ("tcp", "over TCP", "--tcp"),
    ("clients-1", "1 client", "--clients 1 --threads 1"),
    ("clients-50", "50 clients", "--clients 50"),
    ("clients-100", "100 clients", "--clients 100"),
    ("value-1k", "values of 1 KiB", "--value-size 1024"),
    ("value-64k", "values of 64 KiB", "--value-size 65536 --entries 10000 --seconds 1 --threads 1 --tier 8192"),
    ("zipf", "zipfian keys", "--keys zipf"),
)
COMPETITORS = (
    "redis,redis_no_save,redis_io_threads,redis_new,redis_new_no_save,redis_new_io_threads,valkey_new,valkey_new_no_save,"
    "valkey_new_io_threads,memcached,memcached_new,pgcache_hot,pgcache_memory,resp_memory,resp_unlogged"
)


def variations(base, minutes):
    return [workloads(name, title, minutes, f"{base} {options}") for name, title, options in VARIATIONS]


QUICK = [
    Part("instructions", "instructions", "Instructions a request", "--quick", 4),
    Part("tier", "tier", "The hot tier beside what it is measured against", "--seconds 3", 9),
    workloads("base", "1,000,000 entries", 12, "--entries 1000000 --seconds 2 --repeats 5 --tools driver"),
    Part("hit_rate", "hit_rate", "Hit rate under a memory limit", "--quick", 6.5),
    *variations(f"--quick {DRIVER_ONLY} --systems redis,pgcache_hot,pgcache_memory", 0.6),
    Part("web", "web", "Through a web server", "--quick --entries 200000 --seconds 3", 2),
    workloads("competitors", "newer competitors", 1.5, f"--quick {DRIVER_ONLY} --systems {COMPETITORS}"),
    Part("growth", "growth", "How cost grows", "--quick", 6),
    Part("depend", "depend", "What a dependency costs", "--quick", 2),
    Part("spread", "spread", "Keys over several servers", "--quick", 1),
    Part("resp", "resp", "The Redis protocol", "--quick", 2),
    Part("resp_tables", "resp_tables", "Table caches by the Redis protocol", "--quick", 2),
    Part("stalls", "stalls", "What a slow thing costs others", "--quick", 2),
    Part("kv", "kv", "Key-value store loads", "--quick", 2),
    Part("stampede", "stampede", "Cold start and stampede", "--quick", 1),
    Part("application", "application", "Cold start in the application", "--quick", 1),
    Part("tuning", "tuning", "Figures for tuning", "--quick", 3),
]

LONG = f"--entries 1000000 --seconds 5 --repeats 5 {DRIVER_ONLY} --systems"
PUBLISHED = f"--entries 30000000 --seconds 120 --repeats 1 --threads 2 {DRIVER_ONLY} --systems {OF_EACH_KIND}"
FULL = [
    Part("instructions", "instructions", "Instructions a request", "", 15),
    Part("tier", "tier", "The hot tier beside what it is measured against", "--seconds 4 --repeats 7", 14),
    workloads("base", "1,000,000 entries", 65),
    Part("by_hand", "by_hand", "The rounds by hand", "", 6),
    Part("hit_rate", "hit_rate", "Hit rate under a memory limit", "", 80),
    *variations(f"{LONG} {OF_EACH_KIND}", 16),
    Part("web", "web", "Through a web server", "", 40),
    Part("web-tcp", "web", "Through a web server, TCP to the store", "--tcp --repeats 3", 25),
    workloads("competitors", "newer competitors", 40, f"{LONG} {COMPETITORS}"),
    workloads("30m", "30,000,000 entries", 90, PUBLISHED),
    Part("growth", "growth", "How cost grows", "", 60),
    Part("expiry", "expiry", "Expiry under churn", "--each 600,180,120,60", 65),
    Part("depend", "depend", "What a dependency costs", "", 5),
    Part("spread", "spread", "Keys over several servers", "", 3),
    Part("resp", "resp", "The Redis protocol", "", 20),
    Part("resp_tables", "resp_tables", "Table caches by the Redis protocol", "", 8),
    Part("stalls", "stalls", "What a slow thing costs others", "", 6),
    Part("kv", "kv", "Key-value store loads", "", 15),
    Part("stampede", "stampede", "Cold start and stampede", "", 8),
    Part("application", "application", "Cold start in the application", "", 8),
    Part("tuning", "tuning", "Figures for tuning", "", 6),
    Part("scaling", "scaling", "The tier without SQL", "", 3),
    Part("sizes", "sizes", "Hit rate by size of value", "", 10),
]


def planned(full, only=()):
    return [part for part in (FULL if full else QUICK) if not only or part.name in only or part.workload in only]


def parser():
    words = argparse.ArgumentParser(prog="bench/run.sh", description="Every benchmark, and one page of what it found.")
    words.add_argument("--quick", action="store_true", help=f"the essential, at most {QUICK_BUDGET:g} minutes; may be continued")
    words.add_argument("--minutes", type=float, help=f"start no part that would end later (with --quick {QUICK_BUDGET:g}, else no limit)")
    words.add_argument("--only", default="", help="parts or workloads, comma separated")
    words.add_argument("--out", type=Path, help="folder of the results; the same one again continues there")
    words.add_argument("--list", action="store_true", help="say what would run, and stop")
    return words


def main(words):
    options = parser().parse_args(words)
    options.minutes = options.minutes or (QUICK_BUDGET if options.quick else None)
    out = (options.out or ROOT / "build/bench" / ("all-quick" if options.quick else "all-full")).resolve()
    chosen = planned(not options.quick, tuple(word for word in options.only.split(",") if word))
    if options.list:
        for part in chosen:
            print(f"{part.name:<22}{part.minutes:>6.1f} min   {part.command}")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "machine.json").exists():
        write_json(out / "machine.json", machine())
    failed = run_parts(options, out, chosen)
    print(f"\nreport  {page.write(out, chosen)}")
    if failed:
        print(f"failed  {', '.join(failed)}: see the log of each in {out}", file=sys.stderr)
    return 1 if failed else 0


def run_parts(options, out, chosen):
    start, failed = time.monotonic(), []
    todo = [part for part in chosen if not (out / part.name / "ended.json").exists()]
    known = f", {len(chosen) - len(todo)} done before" if len(todo) < len(chosen) else ""
    bound = f", stops after {options.minutes:g}" if options.minutes else ""
    say(f"{len(todo)} parts, about {sum(part.minutes for part in todo):.0f} minutes on two idle cores{bound}{known}; results in {out}")
    for place, part in enumerate(todo):
        spent = (time.monotonic() - start) / 60
        if options.minutes and spent + part.minutes > options.minutes:
            say(f"{part.name}: left out, {spent:.1f} of {options.minutes:g} minutes are used; the same command goes on later")
            continue
        rest = sum(later.minutes for later in todo[place:])
        say(f"{part.name} ({place + 1} of {len(todo)}, about {part.minutes:g} min; all the rest about {rest:.0f} min)")
        if not run(out / part.name, part):
            failed.append(part.name)
    return failed


def run(folder, part):
    """Runs a part. Its output goes to the terminal and to a log; `ended.json` records that it succeeded."""
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-B", "-m", "bench", part.workload, *part.options.split(), "--out", str(folder)]
    start = time.monotonic()
    with open(folder / "log", "a", encoding="utf-8") as log:
        log.write(f"$ {part.command}\n")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
        for line in process.stdout:
            log.write(line.replace(f"{ROOT}/", ""))
            print(f"   {line}", end="", flush=True)
        status = process.wait()
    if status:
        say(f"{part.name} FAILED (exit {status}): see {folder / 'log'}")
        return False
    write_json(folder / "ended.json", {"command": part.command, "seconds": round(time.monotonic() - start)})
    return True


def ended(folder):
    return read_json(folder / "ended.json")
