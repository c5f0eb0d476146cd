"""Checks that the systems do the work: a figure counts only if the reads hit and the writes are stored."""

from math import sqrt

from . import key_distribution as kd, scripts
from .base import insist, output
from .servers import DATABASE
from .tools import Driver, Pgbench

TOLERANCE = 0.02
WARM = 0.98
ENOUGH = 100  # for each connection of the driver
READS, WRITES = 1000, 500  # of the checked pass, for each of its clients
CLIENTS = 8


def tier_for(entries, value_size):
    """Returns the size of a tier with room for all entries, including those that the writes add, because Redis also
    takes as much memory as it needs."""
    return max(2048, int(entries * (value_size + 160) * 1.25 / 1024**2))


def near(share, wanted, samples):
    """Returns whether a share is within two points of the expected one; a short run may deviate by chance, at most by
    five standard deviations."""
    return abs(share - wanted) <= max(TOLERANCE, 5 * sqrt(wanted * (1 - wanted) / samples))


def preload(server):
    wanted, name = server.setup.entries, server.system.name
    found = server.entries()
    insist(found == wanted, f"{name} holds {found} of {wanted} entries")
    if server.system.tier and server.setup.tier_mb >= tier_for(wanted, server.setup.value_size):
        copies = server.tier_entries()  # with a cold tier, the run would measure the table
        insist(copies >= WARM * wanted, f"{name}: the hot tier holds {copies} of {wanted} entries")


def timed_run(server, job, result):
    """Checks a run by its own report, because the driver counts hits."""
    name, rate = f"{server.system.name}, {job.workload} by {job.tool}", result.get("hit_rate")
    right = rate is None or near(rate, kd.HIT_RATE, result["reads"])
    insist(right, f"{name}: {rate} of the reads hit, not {kd.HIT_RATE}")


def growth(server, job, result, before):
    """Checks that ten writes of a timed run leave nine new entries; those of the warm-up are additional."""
    if job.workload != "write":
        return
    grown = server.entries() - before
    writes = result.get("sets") or result["requests"]
    enough = grown >= writes * kd.NEW_SHARE or near(grown / writes, kd.NEW_SHARE, writes)
    insist(enough, f"{server.system.name}: {grown} new entries after {writes} writes by {job.tool}")


def system(server):
    """Runs the checked pass, outside the timed runs. Returns the measured shares."""
    if not server.system.read:  # the driver counts the reads in every timed run, and the server confirms each SET
        return driver_writes(server)
    if server.slow_to_scan:  # overwritten values need a scan; the timed runs have shown that writes are stored
        return {"hit_rate": hit_rate(server)}
    return {"hit_rate": hit_rate(server), **pgbench_writes(server)}  # reads first, because the writes change values


def driver_writes(server):
    """Counts writes. The run has so many writes that those in flight at the end, which no counter includes, do not
    matter."""
    for seconds in (0.2, 1, 5, 25):
        before = server.entries()
        writes = Driver.count_writes(server, seconds)
        if writes >= ENOUGH * server.setup.clients:
            break
    return {"new_share": share_of(server, "new", server.entries() - before, writes, kd.NEW_SHARE)}


def pgbench_writes(server):
    """Runs the write script with another value, which every written key must then have, old keys included. Then runs
    the mixed script."""
    other = "checked" + kd.value(server.setup.value_size)
    before, writes = server.entries(), CLIENTS * WRITES
    pgbench(server, scripts.script(server.system.write), WRITES, "-D", f"value={other}")
    new = server.entries() - before
    written = server.number(f"SELECT count(*) FROM {server.table} WHERE value = '{other}'")
    old = share_of(server, "overwritten", written - new, writes, 1 - kd.NEW_SHARE)
    pgbench(server, scripts.script(server.system.mixed), READS)
    mixed = server.entries() - before - new
    share_of(server, "new in the mix", mixed, CLIENTS * READS, kd.WRITE_SHARE * kd.NEW_SHARE)
    return {"new_share": share_of(server, "new", new, writes, kd.NEW_SHARE), "overwritten_share": old}


def share_of(server, word, count, writes, wanted):
    share = count / writes
    insist(near(share, wanted, writes), f"{server.system.name}: {share:.1%} of {writes} requests were {word}, not {wanted:.0%}")
    return share


def hit_rate(server):
    """Runs the read script and stores its answers in a table, so that a wrong value does not count as a hit."""
    server.sql("CREATE UNLOGGED TABLE IF NOT EXISTS checked (value text)", "TRUNCATE checked")
    pgbench(server, scripts.script(server.system.read, "INSERT INTO checked VALUES (({}))"), READS)
    value = kd.value(server.setup.value_size)
    counts = server.sql(f"SELECT count(*) FILTER (WHERE value = '{value}'), count(*) FROM checked")
    hits, answers = map(int, counts.split("|"))
    insist(answers == CLIENTS * READS, f"{server.system.name}: {answers} answers to {CLIENTS * READS} reads")
    insist(near(hits / answers, kd.HIT_RATE, answers), f"{server.system.name}: {hits / answers:.1%} of the checked reads hit")
    return hits / answers


def pgbench(server, script, transactions, *more):
    words = [*Pgbench.base(server, CLIENTS, 1), *more, "-t", transactions]
    output([*words, "-f", "/dev/stdin", DATABASE], input=script)
