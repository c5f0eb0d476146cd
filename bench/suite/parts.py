"""What `make bench` runs: the parts in the order of their worth, each with a guess of its minutes on two idle cores.

A part is one call of a benchmark's run.sh. A benchmark that is not named here takes part all the same: its run.sh is
found, called with --quick or without, and with --out FOLDER; its report.md becomes a section of the page.
"""

from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
OF_EACH_KIND = "redis,table_unlogged,pgcache_hot,pgcache_memory"
CLIENT_ONLY = "--tools client --no-charts"


@dataclass(frozen=True)
class Part:
    name: str
    folder: str  # below bench/
    title: str
    options: str
    minutes: float

    @property
    def words(self):
        return self.options.split()


def rounds(name, title, minutes, options=""):
    return Part(f"rounds-{name}", "pgbench", title, options, minutes)


# Redis stores a gigabyte a second of large values: short runs, and room in the tier for what they add.
VARIATIONS = (
    ("tcp", "over TCP", "--tcp"),
    ("clients-1", "1 client", "--clients 1 --threads 1"),
    ("clients-50", "50 clients", "--clients 50"),
    ("clients-100", "100 clients", "--clients 100"),
    ("value-1k", "values of 1 KiB", "--value-size 1024"),
    ("value-64k", "values of 64 KiB", "--value-size 65536 --entries 10000 --seconds 1 --threads 1 --tier 8192"),
    ("zipf", "zipfian keys", "--keys zipf"),
)
RIVALS = (
    "redis,redis_no_save,redis_io_threads,redis_new,redis_new_no_save,redis_new_io_threads,valkey_new,valkey_new_no_save,"
    "valkey_new_io_threads,memcached,memcached_new,pgcache_hot,pgcache_memory"
)


def variations(base, minutes):
    return [rounds(name, title, minutes, f"{base} {options}") for name, title, options in VARIATIONS]


QUICK = [
    Part("tier", "tier", "The hot tier beside its rivals", "--seconds 3", 9),
    rounds("base", "1,000,000 entries", 12, "--entries 1000000 --seconds 2 --repeats 5 --tools client"),
    Part("hit_rate", "hit_rate", "Hit rate under a memory limit", "--quick", 6.5),
    *variations(f"--quick {CLIENT_ONLY} --systems redis,pgcache_hot,pgcache_memory", 0.45),
    Part("web", "web", "Through a web server", "--quick --entries 200000 --seconds 3", 2),
    rounds("rivals", "newer rivals", 1.3, f"--quick {CLIENT_ONLY} --systems {RIVALS}"),
    Part("growth", "growth", "How cost grows", "--quick", 3),
]

LONG = f"--entries 1000000 --seconds 5 --repeats 5 {CLIENT_ONLY} --systems"
PUBLISHED = f"--entries 30000000 --seconds 120 --repeats 1 --threads 2 {CLIENT_ONLY} --systems {OF_EACH_KIND}"
FULL = [
    Part("tier", "tier", "The hot tier beside its rivals", "--seconds 4 --repeats 7", 14),
    rounds("base", "1,000,000 entries", 65),
    Part("hit_rate", "hit_rate", "Hit rate under a memory limit", "", 80),
    *variations(f"{LONG} {OF_EACH_KIND}", 16),
    Part("web", "web", "Through a web server", "", 40),
    Part("web-tcp", "web", "Through a web server, TCP to the store", "--tcp --repeats 3", 25),
    rounds("rivals", "newer rivals", 40, f"{LONG} {RIVALS}"),
    rounds("30m", "30,000,000 entries", 90, PUBLISHED),
    Part("growth", "growth", "How cost grows", "", 60),
]

NEEDS_GO = ("web", "kv")


def planned(full, only, have_go):
    known = FULL if full else QUICK
    parts = [part for part in [*known, *found_beside(full, known)] if have_go or part.folder not in NEEDS_GO]
    return [part for part in parts if not only or part.name in only or part.folder in only]


def found_beside(full, known):
    """Benchmarks that came later than this list: whatever has a run.sh. One without --quick is for the full form only."""
    named = {part.folder for part in known}
    scripts = [script for script in sorted(BENCH.glob("*/run.sh")) if script.parent.name not in named]
    options, minutes = ("", 10) if full else ("--quick", 2)
    folders = [script.parent.name for script in scripts if full or "--quick" in script.read_text()]
    return [Part(folder, folder, folder.replace("_", " "), options, minutes) for folder in folders]
