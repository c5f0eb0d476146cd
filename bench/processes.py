"""Measures the cost of a server: CPU seconds and memory of all its processes, read from /proc."""

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def stat_fields(pid):
    """Returns the fields of /proc/PID/stat from field 3, the state, on. Skips the name before it, which may contain
    spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children(parent):
    return [pid for pid in all_pids() if parent_of(pid) == parent]


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid):
    try:
        return int(stat_fields(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def cpu_seconds(server):
    """Returns user and system time of the server, of its living children, and of those that have exited.

    If a child exits during the reading, it moves from the second group to the third, so everything is read again.
    """
    while True:
        before = reaped_ticks(server)
        living = sum(own_ticks(pid) for pid in [server, *children(server)])
        if reaped_ticks(server) == before:
            return (before + living) / TICKS


def cpu_seconds_of(server, title):
    """Returns the CPU seconds of the server's living children with this name."""
    return sum(own_ticks(pid) for pid in children(server) if title in command_line(pid)) / TICKS


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def rate_and_cost(server, load):
    """Returns the requests a second of a load, and the time of the server's processes for a request, in
    microseconds."""
    used, start = cpu_seconds(server), time.monotonic()
    tps = load()
    return tps, (cpu_seconds(server) - used) / (time.monotonic() - start) / tps * 1e6


def machine_seconds():
    """Returns the CPU time in which the machine's cores were not idle, for any process; `steal` is that of other
    virtual machines."""
    user, nice, system, _idle, _iowait, *others = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    return sum(int(field) for field in (user, nice, system, *others)) / TICKS


def reaped_ticks(pid):
    return sum(int(field) for field in stat_fields(pid)[13:15])


def own_ticks(pid):
    try:
        return sum(int(field) for field in stat_fields(pid)[11:13])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def pss_mb(server):
    """Returns the proportional set size: shared memory counts once, however many backends map it.

    Pages of shared memory that only ended processes have touched (such as the one that loaded the data) are in no
    process's set, but still occupied. So if the kernel allows it, shared memory is measured as a whole.
    """
    sizes = [sizes_kb(pid) for pid in [server, *children(server)]]
    total, shared = sum(pss for pss, _ in sizes), sum(shmem for _, shmem in sizes)
    return (total - shared + max(shared, shared_kb(server))) / 1024


def sizes_kb(pid):
    """Returns the whole size, and the part of it that is shared memory."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Pss")}
    return found.get("Pss", 0), found.get("Pss_Shmem", 0)


def shared_kb(pid):
    """Returns the size of the server's anonymous shared mappings, whichever process touched them; only root may read
    it."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        places = [line.split()[0] for line in lines if "/dev/zero (deleted)" in line]
        return sum(os.stat(f"/proc/{pid}/map_files/{place}").st_blocks * 512 for place in places) // 1024
    except OSError:
        return 0
