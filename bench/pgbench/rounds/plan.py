"""What one run asks for: the options of run.sh, and the three sizes it comes in."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from . import systems

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "build/bench-driver/release/rounds-client"

SIZES = {
    "full": {"entries": 1_000_000, "seconds": 8.0, "repeats": 5, "threads": (1, 2)},
    "quick": {"entries": 100_000, "seconds": 1.0, "repeats": 1, "threads": (1,)},
    "smoke": {"entries": 20_000, "seconds": 0.15, "repeats": 1, "threads": (1,)},
}


@dataclass(frozen=True)
class Plan:
    size: str
    entries: int
    clients: int
    seconds: float
    repeats: int
    threads: tuple
    value_size: int
    systems: tuple
    out: Path

    @property
    def warmup(self):
        return max(0.05, min(2.0, self.seconds / 5))


def read_options(words):
    parser = argparse.ArgumentParser(prog="run.sh", description="Read, mixed and write rounds: Redis, tables, pgcache.")
    parser.add_argument("--quick", action="store_const", dest="size", const="quick", help="about a minute")
    parser.add_argument("--smoke", action="store_const", dest="size", const="smoke", help="seconds; asserts, no figures")
    parser.add_argument("--entries", type=int, help="entries to preload (1000000; the published rounds had 30000000)")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, help="length of a timed run (8; the published rounds had 120)")
    parser.add_argument("--repeats", type=int, help="interleaved repetitions (5)")
    parser.add_argument("--value-size", type=int, default=37, help="bytes (37)")
    parser.add_argument("--systems", default=",".join(s.name for s in systems.SYSTEMS), help="comma separated")
    parser.add_argument("--out", type=Path, help="folder for the results (build/bench/<time>)")
    parser.set_defaults(size="full")
    return parser, parser.parse_args(words)


def from_words(words):
    parser, options = read_options(words)
    size = SIZES[options.size]
    try:
        chosen = tuple(systems.by_names(options.systems.split(",")))
    except KeyError as unknown:
        parser.error(f"no system is called {unknown}")
    return Plan(
        size=options.size,
        entries=(options.entries or size["entries"]) // 4 * 4,  # the law counts in fours
        clients=options.clients,
        seconds=options.seconds or size["seconds"],
        repeats=options.repeats or size["repeats"],
        threads=size["threads"],
        value_size=options.value_size,
        systems=chosen,
        out=options.out or ROOT / "build/bench" / time.strftime("%Y%m%d-%H%M%S"),
    )
