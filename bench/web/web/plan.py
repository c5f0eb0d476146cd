"""The options of run.sh and the sizes it comes in."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from rounds import plan as plans, systems

SERVER = plans.ROOT / "build/bench-web/server"
LOAD = Path(__file__).resolve().parents[1] / "load.js"
SIZES = {
    "full": {"entries": 1_000_000, "seconds": 20.0, "repeats": 5},
    "quick": {"entries": 1_000_000, "seconds": 5.0, "repeats": 1},
    "smoke": {"entries": 1000, "seconds": 1.0, "repeats": 1},
}
SYSTEMS = "redis,table_unlogged,pgcache_hot,pgcache_memory"
SMOKE_SYSTEMS = "redis,pgcache_memory"


@dataclass(frozen=True)
class Plan:
    size: str
    users: int
    connections: int
    seconds: float
    repeats: int
    systems: tuple
    rounds: tuple
    store: plans.Plan  # how the server behind is started and loaded
    out: Path


def from_words(words):
    parser = argparse.ArgumentParser(prog="run.sh", description="The rounds through a web server, loaded by k6.")
    parser.add_argument("--quick", action="store_const", dest="size", const="quick", help="one short run each")
    parser.add_argument("--smoke", action="store_const", dest="size", const="smoke", help="asserts, no figures, no k6")
    parser.add_argument("--entries", type=int, help="preloaded (1000000; the published rounds had 30000000)")
    parser.add_argument("--users", type=int, default=50, help="of k6 (50)")
    parser.add_argument("--connections", type=int, default=16, help="the web server holds to the store (16)")
    parser.add_argument("--seconds", type=float, help="length of a timed run (20; the published rounds had 120)")
    parser.add_argument("--repeats", type=int, help="interleaved repetitions (5)")
    parser.add_argument("--systems", help="comma separated, as in bench/pgbench/rounds/systems.py")
    parser.add_argument("--rounds", default=",".join(systems.ROUNDS), help="comma separated")
    parser.add_argument("--tcp", action="store_true", help="between web server and store; unix socket otherwise")
    parser.add_argument("--out", type=Path)
    parser.set_defaults(size="full")
    options = parser.parse_args(words)
    size = SIZES[options.size]
    out = (options.out or plans.ROOT / "build/bench" / time.strftime("web-%Y%m%d-%H%M%S")).resolve()
    store = [
        "--entries",
        str(options.entries or size["entries"]),
        "--clients",
        str(options.connections),
        "--out",
        str(out),
    ]
    try:
        names = options.systems or (SMOKE_SYSTEMS if options.size == "smoke" else SYSTEMS)
        chosen = tuple(systems.by_names(names.split(",")))
    except KeyError as unknown:
        parser.error(f"no system is called {unknown}")
    return Plan(
        size=options.size,
        users=options.users,
        connections=options.connections,
        seconds=options.seconds or size["seconds"],
        repeats=options.repeats or size["repeats"],
        systems=chosen,
        rounds=tuple(options.rounds.split(",")),
        store=plans.from_words([*store, *(["--tcp"] if options.tcp else [])]),
        out=out,
    )
