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
    tcp: bool = False
    keys: str = "uniform"
    tools: tuple = ()  # all that fit the round, unless some are named
    tier_mb: int = 2048
    conf: tuple = ()  # lines for postgresql.conf
    charts: bool = True

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
    parser.add_argument("--tcp", action="store_true", help="over TCP on the loopback interface, not a unix socket")
    parser.add_argument("--keys", choices=("uniform", "zipf"), default="uniform", help="how keys are drawn (uniform)")
    parser.add_argument("--tools", default="", help="only these, comma separated: client, pgbench, redis-benchmark")
    parser.add_argument("--threads", default="", help="of the clients, comma separated; the best counts (1,2)")
    parser.add_argument("--tier", type=int, dest="tier_mb", help="megabytes of the hot tier (room for all entries)")
    parser.add_argument("--no-charts", action="store_false", dest="charts", help="tables are enough")
    parser.add_argument("--systems", default=",".join(s.name for s in systems.SYSTEMS), help="comma separated")
    parser.add_argument("--out", type=Path, help="folder for the results (build/bench/<time>)")
    parser.set_defaults(size="full")
    return parser, parser.parse_args(words)


def from_words(words):
    parser, options = read_options(words)
    size = SIZES[options.size]
    if options.keys != "uniform":
        options.tools = "client"  # the others' skews are not this one
    entries = (options.entries or size["entries"]) // 4 * 4  # the law counts in fours
    try:
        chosen = tuple(systems.by_names(options.systems.split(",")))
    except KeyError as unknown:
        parser.error(f"no system is called {unknown}")
    return Plan(
        size=options.size,
        entries=entries,
        clients=options.clients,
        seconds=options.seconds or size["seconds"],
        repeats=options.repeats or size["repeats"],
        threads=tuple(map(int, options.threads.split(","))) if options.threads else size["threads"],
        value_size=options.value_size,
        systems=chosen,
        out=(options.out or ROOT / "build/bench" / time.strftime("%Y%m%d-%H%M%S")).resolve(),
        tcp=options.tcp,
        charts=options.charts,
        keys=options.keys,
        tools=tuple(options.tools.split(",")) if options.tools else (),
        tier_mb=options.tier_mb or tier_for(entries, options.value_size),
    )


def tier_for(entries, value_size):
    """Room for all entries and for what the write rounds add: Redis takes what it needs as well."""
    return max(2048, int(entries * (value_size + 160) * 1.25 / 1024**2))
