"""The three clients (pgbench, redis-benchmark and the driver of this package), and one timed run of any of them while
the server's cost is measured."""

import json
import re
import resource
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from . import key_distribution as kd, processes, scripts
from .base import BenchError, drive, driver_words, insist, output
from .servers import DATABASE
from .stats import count_latencies, in_ms, latency_of

SAMPLING = 0.02  # of pgbench's transactions are logged; the workload baseline_nolog shows what that costs
BASELINES = {"baseline": "select_1", "baseline_nolog": "select_1", "baseline_key": "length"}
MEMORY_MOMENT = 0.7  # of the run's length; at this point every backend has done its share
WARMUP_REQUESTS = 20_000  # of redis-benchmark


@dataclass(frozen=True)
class Job:
    workload: str
    tool: str = "driver"
    threads: int = 1


class Pgbench:
    """pgbench with -M prepared; latencies come from its log."""

    @staticmethod
    def script(server, workload, folder):
        file = folder / f"{workload}.sql"
        file.write_text(scripts.script(BASELINES.get(workload) or getattr(server.system, workload)))
        return ("-f", file)

    @staticmethod
    def base(server, clients, threads):
        drawn = {"scale": scripts.scale(server.setup.entries), "value": kd.value(server.setup.value_size)}
        words = [server.bin / "pgbench", *server.tool_connection, "-n", "-M", "prepared", "-c", clients, "-j", threads]
        return [*words, *(word for name, content in drawn.items() for word in ("-D", f"{name}={content}"))]

    @classmethod
    def words(cls, server, job, seconds, folder):
        """Returns the command. pgbench counts whole seconds, so a shorter run is given as a number of transactions."""
        clients = server.setup.clients
        length = ["-T", round(seconds)] if seconds >= 1 else ["-t", max(1, int(seconds * 20_000 / clients))]
        return [*cls.base(server, clients, job.threads), *length, *cls.script(server, job.workload, folder)]

    @classmethod
    def command(cls, server, job, options, folder):
        output([*cls.words(server, job, options.warmup, folder), DATABASE])
        words = cls.words(server, job, options.seconds, folder)
        log = ["-l", "--sampling-rate", SAMPLING, "--log-prefix", folder / "pgbench_log"]
        return [*words, *(log if job.workload != "baseline_nolog" else []), DATABASE]

    @staticmethod
    def result(stdout, folder):
        counts = Counter()
        for log in folder.glob("pgbench_log.*"):
            with open(log, encoding="ascii") as lines:
                counts += count_latencies(lines)
        mean = number(r"latency average = ([\d.]+) ms", stdout)
        latency = latency_of(counts, mean) if counts else {"mean_ms": mean, "p50_ms": 0, "p95_ms": 0, "p99_ms": 0}
        failed = int(number(r"number of failed transactions: (\d+)", stdout))
        insist(not failed, f"{failed} transactions failed")
        return {
            "tps": number(r"tps = ([\d.]+)", stdout),
            **latency,
            "requests": int(number(r"transactions actually processed: (\d+)", stdout)),
            "counts": counts,
        }


def number(pattern, text):
    found = re.search(pattern, text)
    insist(found, f"pgbench printed no {pattern}: {text[-300:]}")
    return float(found.group(1))


def pgbench_rate(server, script, seconds, *more, env=None):
    """Returns only the transactions a second of a script."""
    words = [server.bin / "pgbench", "-n", "-T", seconds, *server.connection, *more, "-f", "-", DATABASE]
    return number(r"tps = ([\d.]+)", output(words, input=script, env=env))


class RedisBenchmark:
    """redis-benchmark. It can draw a number and pad it, so it can do reads and plain SETs; it can neither mix commands
    nor overwrite old keys in a tenth of the writes."""

    @staticmethod
    def words(server, job, requests):
        key, value = kd.PREFIX + "__rand_int__", kd.value(server.setup.value_size)
        request = {"baseline": ["PING"], "read": ["GET", key], "set": ["SET", key, value]}[job.workload]
        # One thread is the tool's own loop; --threads 1 would add a second loop, and be slower.
        threads = ["--threads", job.threads] if job.threads > 1 else []
        head = ["redis-benchmark", *server.tool_connection, "-c", server.setup.clients, *threads, "-n", requests, "--csv"]
        return [*head, "-r", kd.slots(server.setup.entries), *request]

    @classmethod
    def command(cls, server, job, options, _folder):
        """Returns the command. The warm-up measures the pace, from which the number of requests follows."""
        ask = lambda requests: cls.parse(output(cls.words(server, job, requests)))  # noqa: E731
        return cls.words(server, job, cls.requests(ask, WARMUP_REQUESTS, options.seconds))

    @staticmethod
    def requests(ask, first, seconds):
        """Returns how many requests fill the time at the pace of a short run, because the tool counts requests, not
        seconds."""
        return max(first, int(ask(first)["rps"] * seconds))

    @staticmethod
    def parse(stdout):
        names, values = (line.replace('"', "").split(",") for line in stdout.strip().splitlines()[-2:])
        return {name: float(text) for name, text in list(zip(names, values[-len(names) :]))[1:]}

    @classmethod
    def result(cls, stdout, _folder):
        row = cls.parse(stdout)
        latency = {f"p{share}_ms": row[f"p{share}_latency_ms"] for share in (50, 95, 99)}
        return {"tps": row["rps"], "mean_ms": row["avg_latency_ms"], **latency, "requests": None, "counts": Counter()}


class Driver:
    """bench/driver: the same loop, keys and clock for all servers, and every workload."""

    @staticmethod
    def asked(server, job, seconds, warmup, keys="uniform"):
        setup = server.setup
        load = {"workload": job.workload, "threads": job.threads, "clients": setup.clients, "entries": setup.entries}
        return {**load, "value": kd.value(setup.value_size), "keys": keys, "seconds": seconds, "warmup": warmup, **server.to_driver}

    @classmethod
    def command(cls, server, job, options, _folder):
        return driver_words("requests", cls.asked(server, job, options.seconds, options.warmup, options.keys))

    @staticmethod
    def result(stdout, _folder):
        seen = json.loads(stdout)
        reads = seen["hits"] + seen["misses"]
        rate = {"hit_rate": seen["hits"] / reads if reads else None, "reads": reads, "sets": seen["sets"]}
        return {"tps": seen["tps"], **in_ms(seen), "requests": seen["requests"], "counts": Counter(dict(seen["latency"])), **rate}

    @classmethod
    def count_writes(cls, server, seconds):
        """Counts the writes of a short run without warm-up, to check that they are stored."""
        return drive("requests", **cls.asked(server, Job("write"), seconds, 0))["sets"]


TOOLS = {"pgbench": Pgbench, "redis-benchmark": RedisBenchmark, "driver": Driver}
KEPT = ("tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "requests")


def measure(server, job, options):
    """Does one timed run: returns a row, everything that the tool reported, and its output. `options`: seconds, warmup,
    keys."""
    tool = TOOLS[job.tool]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stdout, seen = watch(server, tool.command(server, job, options, folder), options.seconds)
        result = tool.result(stdout, folder)
    who = {"workload": job.workload, "system": server.system.name, "tool": job.tool, "threads": job.threads}
    row = {**who, **{name: result[name] for name in KEPT}, "hit_rate": result.get("hit_rate"), **seen}
    return row, result, stdout


def watch(server, words, seconds):
    counted = server.counters()
    before, start = seconds_used(server), time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(seconds * MEMORY_MOMENT)
        memory = processes.pss_mb(server.pid)
        stdout, stderr = process.communicate()
    finally:
        if process.poll() is None:
            process.terminate()
    wall = time.monotonic() - start
    if process.returncode != 0:
        raise BenchError(f"{words[0]} failed: {stderr.strip()[-600:]}")
    cpu, client, machine = ((after - then) / wall for after, then in zip(seconds_used(server), before))
    grown = {name: after - counted[name] for name, after in server.counters().items()}
    other = max(0, machine - cpu - client)
    return stdout, {"cpu": cpu, "client_cpu": client, "other_cpu": other, "rss_mb": memory, **derived(grown)}


def derived(grown):
    """Returns figures derived from the server's counters. The number of transaction ids shows the writes, because each
    write takes one, even in a warm-up within the run. Writes to memory caches take none."""
    found = {}
    if "wal_bytes" in grown:
        found["wal_per_write"] = round(grown["wal_bytes"] / grown["xids"], 1) if grown["xids"] > 0 else 0.0
    if hits := grown.get("hot_hits", 0) + grown.get("table_hits", 0):
        found["tier_hit_rate"] = round(grown["hot_hits"] / hits, 4)
    return found


def seconds_used(server):
    """Returns the CPU time of the server, of the ended tools, and of the machine. The time of the tools is that of
    ended child processes, among which no server is: servers are not child processes, or end only with their block."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return processes.cpu_seconds(server.pid), used.ru_utime + used.ru_stime, processes.machine_seconds()
