"""redis-benchmark, the tool of Redis. It can draw a number and pad it, so it can do the read round and plain SETs;
it cannot mix commands, nor write 10 old keys and 90 new ones."""

from collections import Counter

from . import law
from .command import output
from .stats import Latency

NAME = "redis-benchmark"
WARMUP_REQUESTS = 20_000
KEY = law.PREFIX + "__rand_int__"


def request(plan, round_name):
    return {
        "floor": ["PING"],
        "read": ["GET", KEY],
        "set": ["SET", KEY, law.value(plan.value_size)],
    }[round_name]


def words(server, job, requests):
    plan = server.plan
    # One thread is the tool's own loop; --threads 1 would be a loop beside it, and slower.
    threads = ["--threads", job.threads] if job.threads > 1 else []
    head = ["redis-benchmark", *server.tool_connection, "-c", plan.clients, *threads, "-n", requests, "--csv"]
    return [*head, "-r", law.slots(plan.entries), *request(plan, job.round)]


def warm_up(server, job):
    server.pace = parse(output(words(server, job, WARMUP_REQUESTS)))["rps"]


def command(server, job, _folder):
    """It counts requests, not seconds: as many as the warm-up's pace makes of the time."""
    return words(server, job, max(WARMUP_REQUESTS, int(server.pace * server.plan.seconds)))


def parse(stdout):
    names, values = (line.replace('"', "").split(",") for line in stdout.strip().splitlines()[-2:])
    return {name: float(text) for name, text in list(zip(names, values[-len(names):]))[1:]}


def read_result(stdout, _folder):
    row = parse(stdout)
    percentiles = (row[f"p{share}_latency_ms"] for share in (50, 95, 99))
    return {
        "tps": row["rps"],
        "latency": Latency(row["avg_latency_ms"], *percentiles),
        "requests": None,
        "failed": 0,
        "counts": Counter(),
    }
