"""Builds the short table of the workloads that a newcomer reads, and three sentences of conclusions."""

from .systems import ALL, HOT, MEMORY, RESP_MEMORY
from .tables import cpu_us

ORDER = ("read", "write", "mixed")
HEAD = ("", *(f"{name}/s" for name in ORDER), *(f"{name}, CPU µs" for name in ORDER))
EVEN = 0.9  # of the other's rate: from here on a short run cannot distinguish a loss from chance
NOISE, TICK = 0.2, 0.01  # cores; of a run so short that the clock of processor time did not tick
BUSY = (
    "Other programs took {} cores meanwhile, so these rates say little: run it again on an idle machine. Compared here "
    "is what a second of the server's processor time does."
)
REDIS, TABLE, SQL, HOT_SQL, RESP = "redis", "table_unlogged", MEMORY.name, HOT.name, RESP_MEMORY.name


def about(options):
    runs = f"{options.repeats} run{'s' * (options.repeats > 1)} of {options.seconds:g} s"
    clients = f"{options.clients} client{'s' * (options.clients > 1)}"
    return f"Requests a second, and processor time of the server for one: {options.entries:,} entries, {clients}, {runs}."


def cells(summary, facts):
    """Yields a row for each system, Redis and similar servers first: requests a second, then the server's processor
    time for one request."""
    found = {(row["system"], row["workload"]): row for row in summary}
    for system in sorted(ALL, key=lambda system: not system.is_redis):
        rows = [found.get((system.name, name)) for name in ORDER]
        if any(rows):
            yield (called(system, facts), *cell(rows, lambda row: f"{row['tps']:,.0f}"), *cell(rows, cpu_us))


def cell(rows, shape):
    return ["" if row is None else shape(row) for row in rows]


def called(system, facts):
    """Names Redis and similar servers with their versions."""
    version = facts.get(system.name, {}).get("version")
    _, comma, options = system.label.partition(",")
    return f"{version}{comma}{options}" if system.is_redis and version else system.label


def conclusions(summary, noise):
    """Returns the sentences whose systems were measured. `noise` is the number of cores that other programs used. Other
    programs slow one busy process down more than many processes, so with too much noise the sentences compare processor
    times, not rates."""
    busy = noise > NOISE
    rates = {(row["system"], row["workload"]): row["tps"] / (max(row["cpu"], TICK) if busy else 1) for row in summary}
    systems = {name for name, _ in rates}
    found = ((moving, {RESP, REDIS}), (caching, {HOT_SQL, SQL, TABLE}), (choosing, {RESP, SQL, REDIS}))
    said = [sentence(rates) for sentence, needed in found if needed <= systems]
    return [BUSY.format(noise), *said] if busy else said


def moving(rates):
    read, write, mixed = (rates[RESP, name] / rates[REDIS, name] for name in ORDER)
    least = min(read, write, mixed)
    if least >= EVEN:
        so = "a program that moves from Redis keeps its speed"
    else:
        so = f"a program that moves from Redis keeps {least:.0%} of its speed where it loses most"
    return f"By the Redis protocol a memory cache answers {read:.2f} times as many reads as Redis, {write:.2f} times the writes and {mixed:.2f} times the mix: {so}."


def caching(rates):
    table = rates[TABLE, "read"]
    hot, memory, write = rates[HOT_SQL, "read"] / table, rates[SQL, "read"] / table, rates[SQL, "write"] / rates[TABLE, "write"]
    found = (("reads from the hot tier", hot), ("reads of a memory cache", memory), ("writes to it", write))
    gains = [name for name, ratio in found if ratio > 1 / EVEN]
    so = f"the cache speeds up {joined(gains)}" if gains else "for single keys a plain table is as fast or faster"
    return f"By SQL the hot tier answers {hot:.2f} times as many reads as a plain table, a memory cache {memory:.2f} times, and {write:.2f} times the writes: {so}."


def joined(words):
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def choosing(rates):
    sql, resp = (rates[system, "read"] / rates[REDIS, "read"] for system in (SQL, RESP))
    if sql < EVEN * resp:
        so = "ask for single keys by the protocol, and use SQL where a query or a transaction needs the entries"
    else:
        so = "neither way is slower for single keys"
    return f"The same cache answers {sql:.2f} times as many reads as Redis by SQL and {resp:.2f} times by the protocol: {so}."
