"""Replays a user's trace over the store and over other policies, in one thread and without a server."""

import json
import subprocess
import sys

from .base import ROOT, BenchError, Journal, insist, output, say
from .tables import markdown

LIBRARY = ROOT / "build/libcachesim"
POLICIES = ("LRU", "S3FIFO", "Sieve", "LIRS", "WTinyLFU", "ARC")
HEAD = ("tier, MiB", "entries", "pgcache", "LRU", "S3-FIFO", "SIEVE")


def run(options):
    insist(options.trace.is_file(), f"there is no file {options.trace}")
    words = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "pgcache-store", "--example", "replay", "--"]
    told = output([*words, options.trace.resolve(), *(options.mib.split(",") if options.mib else [])], cwd=ROOT)
    (options.out / "trace.tsv").write_text(told)
    rows = [line.split("\t") for line in told.splitlines()[1:]]
    insist(rows, "all sizes are too small for a tier; --mib gives others")
    oracle = by_oracle(options.trace, [int(row[0]) for row in rows])
    page = report(options.trace.name, rows, oracle)
    print(page)
    Journal(options.out, ()).report([dict(zip(HEAD, row)) for row in rows], page)


def report(name, rows, oracle):
    parts = [
        f"# Hit rate of {name}, in percent of its gets",
        markdown((*HEAD, *(f"libCacheSim {policy}" for policy in POLICIES if oracle)), map(cells, rows, oracle or [()] * len(rows))),
        READING,
    ]
    return "\n\n".join(parts) + ("" if oracle else " libCacheSim did not run.")


def cells(row, oracle):
    return (f"{int(row[0]) / 1024**2:,.2f}", *row[1:], *(f"{rate:.2f}" for rate in oracle))


READING = """The first third of the trace warms up. pgcache pays for its bookkeeping, index and rounding; the others pay 56 bytes an
entry beside a key of 16 bytes and the value. LRU, S3-FIFO and SIEVE are our own; libCacheSim's ignore deletes and deadlines."""


def by_oracle(trace, sizes):
    """Returns rows of rates by libCacheSim, or none if pip cannot install it."""
    try:
        if not (LIBRARY / "libcachesim").exists():
            say("installing libCacheSim into build/")
            output([sys.executable, "-m", "pip", "install", "--quiet", "--target", LIBRARY, "libcachesim"])
        asked = json.dumps({"library": str(LIBRARY), "trace": str(trace.resolve()), "sizes": sizes, "policies": POLICIES})
        return json.loads(output([sys.executable, "-B", "-m", "bench.oracle"], input=asked, cwd=ROOT))
    except (BenchError, OSError, subprocess.SubprocessError) as reason:
        say(f"without libCacheSim: {reason}")
        return []
