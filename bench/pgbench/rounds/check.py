"""That the systems do the work: no figure counts unless the reads hit and the writes arrive."""

from math import sqrt

from . import law, tool_client, tool_pgbench
from .command import RoundError, output
from .plan import tier_for
from .postgres_server import DATABASE

TOLERANCE = 0.02
WARM = 0.98
ENOUGH = 100  # for each connection of the client
READS, WRITES = 1000, 500  # of the checked pass, for each of its clients
CLIENTS = 8


def insist(condition, sentence):
    if not condition:
        raise RoundError(sentence)


def near(share, wanted, samples):
    """Within two points; a short run on a slow machine may stray by chance, five standard deviations at most."""
    return abs(share - wanted) <= max(TOLERANCE, 5 * sqrt(wanted * (1 - wanted) / samples))


def preload(server):
    found = server.entries()
    insist(found == server.plan.entries, f"{server.system.name} holds {found} of {server.plan.entries} entries")
    if server.system.tier:  # a tier that is cold says nothing about the tier
        copies, wanted = server.tier_entries(), WARM * server.plan.entries
        roomy = server.plan.tier_mb >= tier_for(server.plan.entries, server.plan.value_size)
        insist(
            copies >= wanted or not roomy,
            f"{server.system.name}: the hot tier holds {copies} of {server.plan.entries} entries",
        )


def timed_run(server, job, result):
    """What a run tells about itself: the client counts hits, pgbench how often each script ran."""
    name = f"{server.system.name}, {job.round} by {job.tool}"
    rate = result.get("hit_rate")
    insist(
        rate is None or near(rate, law.HIT_RATE, result["reads"]),
        f"{name}: {rate} of the reads hit, not {law.HIT_RATE}",
    )
    shares = result.get("script_counts") or []
    if len(shares) == 2:
        share = shares[1] / sum(shares)
        insist(
            near(share, law.WRITE_SHARE, sum(shares)),
            f"{name}: {share} of the requests were writes, not {law.WRITE_SHARE}",
        )


def growth(server, job, result, before):
    """A timed write round leaves nine new entries for ten writes; the warm-up's come on top."""
    if job.round != "write":
        return
    grown = server.entries() - before
    writes = result.get("sets") or result["requests"]
    enough = grown >= writes * law.NEW_SHARE or near(grown / writes, law.NEW_SHARE, writes)
    insist(enough, f"{server.system.name}: {grown} new entries after {writes} writes by {job.tool}")


def system(server):
    """The checked pass, outside of the timed runs. Returns the shares it found."""
    if not server.system.is_postgres:  # its reads are counted in every timed run of the client, each SET is answered OK
        return client_writes(server)
    if server.slow_to_scan:  # what was overwritten can only be seen by a scan; that writes arrive, each write run has shown
        return {"hit_rate": hit_rate(server)}
    return {"hit_rate": hit_rate(server), **pgbench_writes(server)}  # in this order: the writes change values


def client_writes(server):
    """Enough of them that those in flight at the end, which nobody counts, do not matter."""
    for seconds in (0.2, 1, 5, 25):
        before = server.entries()
        writes = tool_client.count_writes(server, seconds)
        if writes >= ENOUGH * server.plan.clients:
            break
    return {"new_share": share_of(server, "new", server.entries() - before, writes, law.NEW_SHARE)}


def pgbench_writes(server):
    """The write script with another value: every key it wrote must hold that value, old keys too."""
    other = "checked" + law.value(server.plan.value_size)
    before, writes = server.entries(), CLIENTS * WRITES
    pgbench(server, server.script("write").read_text(), WRITES, "-D", f"value={other}")
    new = server.entries() - before
    written = int(server.sql(f"SELECT count(*) FROM bench WHERE value = '{other}'"))
    return {
        "new_share": share_of(server, "new", new, writes, law.NEW_SHARE),
        "overwritten_share": share_of(server, "overwritten", written - new, writes, 1 - law.NEW_SHARE),
    }


def share_of(server, word, count, writes, wanted):
    share = count / writes
    insist(
        near(share, wanted, writes),
        f"{server.system.name}: {share:.1%} of {writes} writes were {word}, not {wanted:.0%}",
    )
    return share


def hit_rate(server):
    """The read script as it is, its answers kept in a table: a wrong value is no hit."""
    server.sql("CREATE UNLOGGED TABLE IF NOT EXISTS checked (value text)", "TRUNCATE checked")
    lines = server.script("read").read_text().splitlines()
    lines[-1] = f"INSERT INTO checked VALUES (({lines[-1].rstrip(';')}));"
    pgbench(server, "\n".join(lines), READS)
    hits, answers = checked(server)
    insist(answers == CLIENTS * READS, f"{server.system.name}: {answers} answers to {CLIENTS * READS} reads")
    share = hits / answers
    insist(near(share, law.HIT_RATE, answers), f"{server.system.name}: {share:.1%} of the checked reads hit")
    return share


def checked(server):
    value = law.value(server.plan.value_size)
    counts = server.sql(f"SELECT count(*) FILTER (WHERE value = '{value}'), count(*) FROM checked")
    return [int(count) for count in counts.split("|")]


def pgbench(server, script, transactions, *more):
    words = [*tool_pgbench.base_words(server, CLIENTS, 1), *more, "-t", transactions]
    output([*words, "-f", "/dev/stdin", DATABASE], input=script)
