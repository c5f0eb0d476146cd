"""The base of every benchmark: options, the programs that it needs, a journal from which a stopped run continues, and
facts about the machine."""

import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DRIVER = ROOT / "build/bench-driver/release/bench-driver"


class BenchError(Exception):
    """Stops a run; its message tells the user why."""


def insist(condition, sentence):
    if not condition:
        raise BenchError(sentence)


def say(text):
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def output(words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    insist(done.returncode == 0, f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def driver_words(mode, options):
    """Converts `value_size=37` to `--value-size 37`."""
    return [DRIVER, mode, *(word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value))]


def drive(mode, /, **options):
    return json.loads(output(driver_words(mode, options)))


def write_json(path, content):
    path.write_text(json.dumps(content, indent=1) + "\n")


def read_json(path, otherwise=None):
    return json.loads(path.read_text()) if path.exists() else otherwise


def machine():
    """Describes the machine on which the figures were measured."""
    return {
        "cpu": field("/proc/cpuinfo", "model name", ":"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(field("/proc/meminfo", "MemTotal", ":").split()[0]) / 1024**2, 1),
        "kernel": platform.release().partition("-")[0],
        "system": field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "load_at_start": os.getloadavg()[0],
        "day": time.strftime("%Y-%m-%d"),
    }


def field(path, name, separator):
    lines = Path(path).read_text().splitlines()
    return next((line.partition(separator)[2].strip() for line in lines if line.startswith(name)), "unknown")


def ground(facts):
    return f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB; {facts['system']}, Linux {facts['kernel']}"


class Journal:
    """The folder of a run. runs.jsonl has a line for each timed run, so that a second start in the same folder does not
    repeat the run. facts.json has the facts that all runs share."""

    def __init__(self, out, key):
        self.out, self.key = out, key
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "runs.jsonl"
        self.rows = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.facts = read_json(out / "facts.json") or {"machine": machine()}

    def has(self, *values):
        return any(tuple(row[name] for name in self.key) == values for row in self.rows)

    def add(self, row):
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")

    def keep(self, rows):
        self.rows = rows
        self.path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write_facts(self):
        write_json(self.out / "facts.json", self.facts)

    def report(self, summary, text):
        write_json(self.out / "summary.json", summary)
        self.write_facts()
        (self.out / "report.md").write_text(text.rstrip() + "\n")
        print(f"\nreport  {self.out / 'report.md'}")


def read_options(name, module, words):
    """Returns the common options, those of the workload, and the defaults of its SIZES."""
    about = module.__doc__.partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog=f"bench/run.sh {name}", description=about)
    for size in [size for size in ("quick", "smoke") if size in module.SIZES]:
        words_for = {"quick": "short runs, few of them", "smoke": "seconds; asserts instead of figures"}
        parser.add_argument(f"--{size}", action="store_const", dest="size", const=size, help=words_for[size])
    parser.add_argument("--seconds", type=float, help="length of a timed run")
    parser.add_argument("--repeats", type=int, help="repetitions, every system once in each")
    parser.add_argument("--out", type=Path, help="folder of the results; the same one again continues there")
    parser.set_defaults(size="full")
    module.add_options(parser)
    options = parser.parse_args(words)
    for option, value in module.SIZES[options.size].items():
        if getattr(options, option, None) is None:
            setattr(options, option, value)
    options.out = (options.out or ROOT / "build/bench" / time.strftime(f"{name}-%Y%m%d-%H%M%S")).resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def named(known, names):
    """Returns the entries with these names, in this order; all if no name is given."""
    found = {entry.name: entry for entry in known}
    if not names:
        return list(known)
    unknown = set(names.split(",")) - set(found)
    insist(not unknown, f"nothing is called {', '.join(unknown)}; there are {', '.join(found)}")
    return [found[name] for name in names.split(",")]
