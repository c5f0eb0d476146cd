"""Measures the hit rate of the store at many value sizes: without a server, in one thread, with the same trace every
time."""

from .base import Journal, insist, output

SIZES = {"full": {"seconds": 0, "repeats": 1}, "smoke": {"seconds": 0, "repeats": 1}}
ONCE_FELL = (3300, 7400, 11500, 27900, 31800, 32000, 36000, 60000)  # sizes that once had the hit rate of LRU
MUST, FROM = 74.0, 3000


def add_options(parser):
    parser.add_argument("--tier", type=int, default=64, help="MiB of the tier")


def run(options):
    words = [16, *ONCE_FELL] if options.size == "smoke" else [options.tier]
    told = output(["cargo", "run", "--quiet", "--release", "--locked", "-p", "pgcache-store", "--example", "hit_rates", "--", "sizes", *words])
    (options.out / "sizes.tsv").write_text(told)
    print(told)
    judge(told)
    if options.size != "smoke":
        Journal(options.out, ()).report(*report(told))


def report(told):
    least = min(rows(told), key=lambda row: row[1])
    return {"least": least}, f"# Hit rate by size of value\n\n{len(rows(told))} sizes; the least is {least[1]} % at {least[0]:,} bytes."


def rows(told):
    found = (line.split("\t") for line in told.splitlines()[1:])
    return [(int(words[0]), float(words[1])) for words in found if int(words[0]) >= FROM]


def judge(told):
    """Fails unless every size from 3 kB on has at least this hit rate."""
    low = [size for size, rate in rows(told) if rate < MUST]
    insist(rows(told) and not low, f"below {MUST:g} %: {low or 'nothing was measured'}")
