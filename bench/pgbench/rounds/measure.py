"""One timed run: start the tool, watch the server from outside, keep what was seen."""

import resource
import subprocess
import tempfile
import time
from pathlib import Path

from . import processes
from .command import RoundError
from .jobs import TOOLS

MEMORY_MOMENT = 0.7  # of the run's length: every backend has done its share by then


def run(server, job):
    tool = TOOLS[job.tool]
    tool.warm_up(server, job)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stdout, seen = watch(server, tool.command(server, job, folder))
        result = tool.read_result(stdout, folder)
    if result["failed"]:
        raise RoundError(f"{server.system.name}, {job.round}: {result['failed']} transactions failed")
    return row(server, job, result, seen), result, stdout


def watch(server, words):
    counted = server.counters()
    before, start = seconds_used(server), time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(server.plan.seconds * MEMORY_MOMENT)
        memory = processes.pss_mb(server.pid)
        stdout, stderr = process.communicate()
    finally:
        if process.poll() is None:
            process.terminate()
    wall = time.monotonic() - start
    if process.returncode != 0:
        raise RoundError(f"{words[0]} failed: {stderr.strip()[-600:]}")
    cpu, client, machine = ((after - then) / wall for after, then in zip(seconds_used(server), before))
    other = max(0, machine - cpu - client)
    grown = {name: after - counted[name] for name, after in server.counters().items()}
    return stdout, {"cpu": cpu, "client_cpu": client, "other_cpu": other, "rss_mb": memory, **derived(grown)}


def derived(grown):
    """Each write takes one transaction id, those of a warm-up inside the run included; memory caches take none."""
    found = {}
    if grown.get("xids", 0) > 0:
        found["wal_per_write"] = round(grown["wal_bytes"] / grown["xids"], 1)
    elif "wal_bytes" in grown:
        found["wal_per_write"] = 0.0
    hits = grown.get("hot_hits", 0) + grown.get("table_hits", 0)
    if hits:
        found["tier_hit_rate"] = round(grown["hot_hits"] / hits, 4)
    return found


def seconds_used(server):
    return processes.cpu_seconds(server.pid), client_seconds(), processes.machine_seconds()


def client_seconds():
    """CPU time of the tools that have ended; servers are not our children, or end with their block."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(server, job, result, seen):
    latency = result["latency"]
    return {
        "round": job.round,
        "system": server.system.name,
        "tool": job.tool,
        "threads": job.threads,
        "tps": result["tps"],
        "mean_ms": latency.mean_ms,
        "p50_ms": latency.p50_ms,
        "p95_ms": latency.p95_ms,
        "p99_ms": latency.p99_ms,
        "hit_rate": result.get("hit_rate"),
        "requests": result["requests"],
        **seen,
    }
