"""How much memory a server took at its worst, and how much of it is the cache."""

import threading

from rounds import processes

MIB = 1024**2
EVERY = 1.0  # seconds; walking the page tables of 2 GiB is not free


class Peak(threading.Thread):
    """Watches the proportional set size of a server until it is told to stop."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.mb = pid, 0.0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(EVERY):
            self.look()

    def look(self):
        self.mb = max(self.mb, processes.pss_mb(self.pid))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()
        self.look()


def cache_bytes(server):
    """By the server's own word: the shared region; what the allocator gave out; slab pages and hash table."""
    system = server.system
    if system.is_postgres:
        return int(server.sql("SELECT size FROM pgcache.hot_tier"))
    if system.is_redis:
        return server.info("memory", "used_memory_peak")
    slabs = server.ask("stats slabs").split()
    return int(slabs[slabs.index("total_malloced") + 1]) + server.stat("hash_bytes")
