"""What the figures were taken on."""

import os
import platform
from pathlib import Path


def describe():
    return {
        "cpu": field("/proc/cpuinfo", "model name", ":"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(field("/proc/meminfo", "MemTotal", ":").split()[0]) / 1024**2, 1),
        "kernel": platform.release().partition("-")[0],
        "system": field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "load_at_start": os.getloadavg()[0],
    }


def field(path, name, separator):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(separator)[2].strip()
    return "unknown"
