"""A server that is our child: Redis, Valkey, memcached. Started with a socket of its own, stopped by its pid."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from . import law
from .command import RoundError, output
from .plan import CLIENT


class OwnProcess:
    """A subclass says how the program is called and when it answers."""

    protocol = ""

    def __init__(self, system, plan):
        self.system, self.plan = system, plan
        self.folder = plan.out / system.name
        self.process = None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_folder = Path(tempfile.mkdtemp(prefix="pgcache-rival-"))  # a socket's path must be short
        self.path = str(self.run_folder / "socket")
        self.port = free_port() if self.plan.tcp else 0
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([str(word) for word in self.words()], stdout=log, stderr=log)
        self.wait_until_ready()
        return self

    def wait_until_ready(self):
        for _ in range(200):
            if self.process.poll() is not None:
                break
            if self.answers():
                return
            time.sleep(0.05)
        raise RoundError(f"{self.system.label} did not start: see {self.folder / 'log'}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.forget()
        self.process.terminate()
        self.process.wait(timeout=120)
        shutil.rmtree(self.run_folder)

    def forget(self):
        """What keeps a server from stopping at once."""

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self):
        return self.process.pid

    @property
    def socket(self):
        """As the client takes it."""
        return f"127.0.0.1:{self.port}" if self.plan.tcp else self.path

    def preload(self):
        words = [CLIENT, "--protocol", self.protocol, "--socket", self.socket, "--round", "load"]
        output([*words, "--entries", self.plan.entries, "--value", law.value(self.plan.value_size)])

    def counters(self):
        """Postgres alone has counters that a run's row wants."""
        return {}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
