"""pgbench, the tool of Postgres: -M prepared, latencies from its own log."""

import re
from collections import Counter

from . import law
from .command import RoundError, output
from .postgres_server import DATABASE
from .stats import Latency, count_latencies

NAME = "pgbench"
SAMPLING = 0.02  # of the transactions are logged; the round floor_nolog shows what that costs
FLOORS = {"floor": "floor.sql", "floor_nolog": "floor.sql", "floor_key": "floor_key.sql"}
WEIGHTS = {"mixed": (("read", 8), ("write", 2))}


def scripts(server, round_name):
    if round_name in FLOORS:
        return ["-f", server.scripts / FLOORS[round_name]]
    parts = WEIGHTS.get(round_name, ((round_name, 1),))
    return [word for name, weight in parts for word in ("-f", f"{server.script(name)}@{weight}")]


def base_words(server, clients, threads):
    plan = server.plan
    words = [server.bin / "pgbench", *server.tool_connection, "-n", "-M", "prepared", "-c", clients, "-j", threads]
    for name, content in variables(plan).items():
        words += ["-D", f"{name}={content}"]
    return words


def variables(plan):
    return {"entries": plan.entries, "slots": law.slots(plan.entries), "value": law.value(plan.value_size)}


def length(seconds, clients):
    """pgbench counts whole seconds; a shorter run is given as transactions."""
    return ["-T", round(seconds)] if seconds >= 1 else ["-t", max(1, int(seconds * 20_000 / clients))]


def warm_up(server, job):
    words = base_words(server, server.plan.clients, job.threads) + length(server.plan.warmup, server.plan.clients)
    output([*words, *scripts(server, job.round), DATABASE])


def command(server, job, folder):
    plan = server.plan
    words = base_words(server, plan.clients, job.threads) + length(plan.seconds, plan.clients)
    if job.round != "floor_nolog":
        words += ["-l", "--sampling-rate", SAMPLING, "--log-prefix", folder / "pgbench_log"]
    return [*words, *scripts(server, job.round), DATABASE]


def read_result(stdout, folder):
    counts = Counter()
    for log in folder.glob("pgbench_log.*"):
        with open(log, encoding="ascii") as lines:
            counts += count_latencies(lines)
    mean = number(r"latency average = ([\d.]+) ms", stdout)
    return {
        "tps": number(r"tps = ([\d.]+)", stdout),
        "latency": Latency.of(counts, mean) if counts else Latency(mean, 0, 0, 0),
        "requests": int(number(r"transactions actually processed: (\d+)", stdout)),
        "failed": int(number(r"number of failed transactions: (\d+)", stdout)),
        "counts": counts,
        "script_counts": [int(n) for n in re.findall(r" - (\d+) transactions \(", stdout)],
    }


def number(pattern, text):
    found = re.search(pattern, text)
    if not found:
        raise RoundError(f"pgbench printed no {pattern}: {text[-300:]}")
    return float(found.group(1))
