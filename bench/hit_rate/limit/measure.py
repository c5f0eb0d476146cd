"""One system under one limit: a pass to warm up, a pass that counts."""

import json

from rounds import law, processes, servers
from rounds.command import RoundError, output
from rounds.plan import CLIENT
from rounds.postgres_server import DATABASE

from .cases import per_memory
from .memory import MIB, Peak, cache_bytes
from .systems import limited


def run(case, system, plan):
    server = servers.of(limited(system, case.limit_mb), plan)
    try:
        with server:
            if system.is_postgres:
                server.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
                server.sql(system.create)
            return measured(case, server, plan)
    finally:
        server.remove()


def measured(case, server, plan):
    before = processes.cpu_seconds(server.pid)
    with Peak(server.pid) as peak:
        stdout = output(words(case, server, plan))
    cpu = processes.cpu_seconds(server.pid) - before
    seen = json.loads(stdout)
    seen.pop("latency")
    return {**row(case, server, seen, peak.mb), "cpu_seconds": round(cpu, 2), "raw": seen}


def words(case, server, plan):
    head = [CLIENT, "--socket", server.socket, "--round", "cached", "--keys", "hot", "--entries", case.keys]
    head += ["--clients", plan.clients, "--value-size", case.value_size]
    head += ["--gets", case.gets, "--warmup-gets", case.gets]
    if not server.system.is_postgres:
        return [*head, "--protocol", server.protocol]
    sql = ["--read-sql", server.statement("read"), "--write-sql", server.statement("write")]
    return [*head, "--protocol", "postgres", "--database", DATABASE, "--offset", law.PGBENCH_OFFSET, *sql]


def row(case, server, seen, peak_mb):
    gets, used_mb = seen["hits"] + seen["misses"], cache_bytes(server) / MIB
    if seen["hits"] == 0:
        raise RoundError(f"{server.system.name}: not one hit")
    hit_rate = seen["hits"] / gets
    return {
        "case": case.name,
        "system": server.system.name,
        "version": server.version(),
        "limit_mb": case.limit_mb,
        "hit_rate": round(hit_rate, 5),
        "hot_hit_rate": round(seen["hot_hits"] / seen["hot_gets"], 5),
        "hits_per_second": round(seen["hits"] / seen["seconds"]),
        "refused": seen["refused"],
        "cache_mb": round(used_mb, 1),
        "server_mb": round(peak_mb, 1),
        "per_cache_memory": round(per_memory(hit_rate, used_mb, case.limit_mb), 5),
        "per_server_memory": round(per_memory(hit_rate, peak_mb, case.limit_mb), 5),
        **tier_share(server),
    }


def tier_share(server):
    """A table cache answers from its table what its tier does not hold: the tier's own hit rate is less."""
    if server.system.name != "pgcache_hot":
        return {}
    counted = server.counters()
    reads = sum(counted[name] for name in ("hot_hits", "table_hits", "misses"))
    return {"tier_hit_rate_both_passes": round(counted["hot_hits"] / reads, 5)}
