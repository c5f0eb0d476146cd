"""Runs servers on one core and their clients on another, because the way in which the scheduler places many processes
on few cores is not a property of a server."""

import contextlib
import os

from .processes import children


def are_two():
    return len(os.sched_getaffinity(0)) > 1


@contextlib.contextmanager
def one_core_for(servers):
    """Pins the servers with all of their processes, present and future, to the first core. Pins this process, whose
    children are the clients, to the second core."""
    first, second, *_ = cores = sorted(os.sched_getaffinity(0))
    place(servers, [first])
    os.sched_setaffinity(0, [second])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        place(servers, cores)


def place(servers, cores):
    for server in servers:
        for pid in [server, *children(server)]:
            for thread in threads(pid):
                # A session may just be ending.
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, cores)


def threads(pid):
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []
