"""The command line, python3 -m bench [NAME]: runs the named workload, or runs all workloads and builds the page of
results."""

import importlib
import sys
import unittest

from . import base, suite

WORKLOADS = {
    "by_hand": "the scripts of bench/pgbench, one by one and by their run.sh",
    "workloads": "read, mixed and write over Redis, plain tables and pgcache, side by side",
    "tier": "ratios: the hot tier over SELECT 1, a prepared SELECT, an upsert and Redis",
    "instructions": "user instructions of the server for one request, which depend on no neighbour",
    "scaling": "the tier without SQL, by number of processes",
    "hit_rate": "what is hit when memory is a quarter of the data",
    "sizes": "the hit rate of the store alone, at sizes of value from 64 bytes to 1 MiB",
    "web": "the workloads through a small web server, as they were published",
    "growth": "how cost grows with entries, tier size, value size, clients, caches",
    "expiry": "room and cost under constant overwrite and expiry",
    "stampede": "an empty cache, a slow database behind it, and hundreds of clients",
    "application": "the same in an application that keeps what it reads in its own memory",
    "depend": "what cache_depend costs an UPDATE of 100,000 rows",
    "spread": "what it costs to spread keys over several servers",
    "tuning": "the figures of docs/tuning.md",
    "resp": "the Redis protocol beside Redis: single commands, pipelines, many keys, many clients",
    "resp_tables": "table caches by the Redis protocol beside prepared SQL, a memory cache and Redis",
    "stalls": "what a slow thing costs other clients of the Redis protocol",
    "kv": "the loads of a key-value store, beside etcd",
}


def main(words):
    if not words or words[0].startswith("--") and words[0] != "--help":
        return suite.main(words)
    if words[0] == "--help":
        suite.parser().print_help()
        print("\nworkloads:\n" + "\n".join(f"  {name:<12}{about}" for name, about in WORKLOADS.items()))
        return 0
    if words[0] == "names":
        print("\n".join(WORKLOADS))
        return 0
    if words[0] == "tests":
        tests = unittest.defaultTestLoader.discover(base.ROOT / "bench/tests", top_level_dir=base.ROOT)
        return 0 if unittest.TextTestRunner().run(tests).wasSuccessful() else 1
    base.insist(words[0] in WORKLOADS, f"no workload is called {words[0]}; there are {', '.join(WORKLOADS)}")
    module = importlib.import_module(f"bench.{words[0]}")
    module.run(base.read_options(words[0], module, words[1:]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except base.BenchError as reason:
        sys.exit(f"bench: {reason}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped; the same command with the same --out goes on where it stopped")
