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
    before, start = seconds_used(server), time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
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
    return stdout, {"cpu": cpu, "client_cpu": client, "other_cpu": other, "rss_mb": memory}


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
