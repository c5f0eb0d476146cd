"""python3 -m suite: runs the parts, one after the other, then writes the page. What is done is not done again."""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rounds import machine

from . import page, parts

ROOT = Path(__file__).resolve().parents[2]
QUICK_BUDGET = 45.0


def main(words):
    options = read_options(words)
    chosen = parts.planned(options.full, options.only, shutil.which("go"))
    if options.list:
        for part in chosen:
            print(f"{part.name:<18}{part.minutes:>6.1f} min   bench/{part.folder}/run.sh {part.options}")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    remember_machine(options)
    start, failed = time.monotonic(), []
    todo = [part for part in chosen if not done(options, part)]
    announce(options, chosen, todo)
    for place, part in enumerate(todo):
        spent = (time.monotonic() - start) / 60
        if options.minutes and spent + part.minutes > options.minutes:
            say(
                f"{part.name}: left out, {spent:.1f} of {options.minutes:g} minutes are used; the same command goes on later"
            )
            continue
        rest = sum(later.minutes for later in todo[place:])
        say(f"{part.name} ({place + 1} of {len(todo)}, about {part.minutes:g} min; all the rest about {rest:.0f} min)")
        if not run(options, part):
            failed.append(part.name)
    print(f"\nreport  {page.write(options.out, chosen)}")
    if failed:
        print(f"failed  {', '.join(failed)}: see the log of each in {options.out}", file=sys.stderr)
    return 1 if failed else 0


def remember_machine(options):
    facts = options.out / "machine.json"
    if not facts.exists():
        facts.write_text(json.dumps({**machine.describe(), "day": time.strftime("%Y-%m-%d")}, indent=1) + "\n")


def announce(options, chosen, todo):
    minutes = sum(part.minutes for part in todo)
    known = f", {len(chosen) - len(todo)} done before" if len(todo) < len(chosen) else ""
    bound = f", stops after {options.minutes:g}" if options.minutes else ""
    say(f"{len(todo)} parts, about {minutes:.0f} minutes on two idle cores{bound}{known}; results in {options.out}")


def done(options, part):
    return (options.out / part.name / "seconds").exists()


def run(options, part):
    """Its output goes to the terminal and to a log; `seconds` marks that it ended well."""
    folder = options.out / part.name
    folder.mkdir(exist_ok=True)
    words = [parts.BENCH / part.folder / "run.sh", *part.words, "--out", folder]
    start = time.monotonic()
    with open(folder / "log", "a", encoding="utf-8") as log:
        log.write(f"$ bench/{part.folder}/run.sh {part.options}\n")
        process = subprocess.Popen(
            [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        for line in process.stdout:
            log.write(line.replace(f"{ROOT}/", ""))
            print(f"   {line}", end="", flush=True)
        status = process.wait()
    if status:
        say(f"{part.name} FAILED (exit {status}): see {folder / 'log'}")
        return False
    (folder / "seconds").write_text(f"{time.monotonic() - start:.0f}\n")
    return True


def say(text):
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def read_options(words):
    parser = argparse.ArgumentParser(prog="bench/run.sh", description="Every benchmark, and one page of what it found.")
    parser.add_argument(
        "--quick", action="store_true", help=f"the essential, at most {QUICK_BUDGET:g} minutes; may be continued"
    )
    parser.add_argument(
        "--minutes", type=float, help="start no part that would end later (with --quick 45, else no limit)"
    )
    parser.add_argument("--only", default="", help="parts or folders, comma separated")
    parser.add_argument("--out", type=Path, help="folder of the results; the same one again continues there")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    options = parser.parse_args(words)
    options.full = not options.quick
    options.only = tuple(word for word in options.only.split(",") if word)
    options.minutes = options.minutes or (QUICK_BUDGET if options.quick else None)
    size = "quick" if options.quick else "full"
    options.out = (options.out or ROOT / "build/bench" / f"all-{size}").resolve()
    return options


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("bench: stopped; the same command goes on where it stopped")
