"""rounds-client (bench/driver): the same loop, keys and clock for both servers, and every round."""

import json
from collections import Counter

from . import law
from .command import output
from .plan import CLIENT
from .postgres_server import DATABASE
from .stats import Latency

NAME = "client"


def words(server, job, seconds, warmup):
    plan = server.plan
    head = [CLIENT, "--socket", server.socket, "--round", job.round, "--threads", job.threads]
    head += ["--clients", plan.clients, "--entries", plan.entries, "--value", law.value(plan.value_size)]
    head += ["--keys", plan.keys]
    return [*head, "--seconds", seconds, "--warmup", warmup, *protocol(server)]


def protocol(server):
    if not server.system.is_postgres:
        return ["--protocol", server.protocol]
    sql = ["--read-sql", server.statement("read"), "--write-sql", server.statement("write")]
    return ["--protocol", "postgres", "--database", DATABASE, "--offset", law.PGBENCH_OFFSET, *sql]


def warm_up(_server, _job):
    """Within the run, on the connections that are measured."""


def command(server, job, _folder):
    return words(server, job, server.plan.seconds, server.plan.warmup)


def read_result(stdout, _folder):
    seen = json.loads(stdout)
    counts = Counter(dict(seen["latency"]))
    reads = seen["hits"] + seen["misses"]
    return {
        "tps": seen["tps"],
        "latency": Latency.of(counts, seen["mean_us"] / 1000),
        "requests": seen["requests"],
        "failed": 0,
        "counts": counts,
        "hit_rate": seen["hits"] / reads if reads else None,
        "reads": reads,
        "sets": seen["sets"],
    }


def count_writes(server, seconds):
    """Writes of a short run without warm-up, for the check that they arrive."""
    job = type("Job", (), {"round": "write", "threads": 1})
    return json.loads(output(words(server, job, seconds, 0)))["sets"]
