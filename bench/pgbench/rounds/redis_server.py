"""A throwaway Redis: built-in defaults, snapshots included; only TCP is off and the folder is ours."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from . import law
from .command import RoundError, output
from .plan import CLIENT

SHOWN = ("save", "appendonly", "maxmemory", "io-threads")


class RedisServer:
    def __init__(self, system, plan):
        self.system, self.plan = system, plan
        self.folder = plan.out / "redis"
        self.process = None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_folder = Path(tempfile.mkdtemp(prefix="pgcache-redis-"))  # a socket's path must be short
        self.socket = str(self.run_folder / "socket")
        words = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", str(self.folder)]
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        self.wait_until_ready()
        return self

    def wait_until_ready(self):
        for _ in range(100):
            if self.process.poll() is not None:
                break
            if Path(self.socket).exists() and self.cli("PING") == "PONG":
                return
            time.sleep(0.05)
        raise RoundError(f"Redis did not start: see {self.folder / 'log'}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.run_folder)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self):
        return self.process.pid

    def cli(self, *words):
        return output(["redis-cli", "-s", self.socket, *words]).strip()

    def load(self):
        """Empty it, fill it, and write the snapshot, as Postgres is checkpointed."""
        self.cli("FLUSHALL")
        words = [CLIENT, "--protocol", "redis", "--socket", self.socket, "--round", "load"]
        output([*words, "--entries", self.plan.entries, "--value", law.value(self.plan.value_size)])
        self.cli("SAVE")

    def entries(self):
        return int(self.cli("DBSIZE"))

    def settings(self):
        return {name: self.cli("CONFIG", "GET", name).partition("\n")[2] or "(none)" for name in SHOWN}

    def snapshots(self):
        """Snapshots it has taken so far, the one after the preload among them."""
        info = self.cli("INFO", "persistence").splitlines()
        return next((int(line.split(":")[1]) for line in info if line.startswith("rdb_saves")), None)

    def disk_mb(self):
        return sum(file.stat().st_size for file in self.folder.glob("*.rdb")) / 1024**2

    def version(self):
        return "Redis " + output(["redis-server", "--version"]).split("v=")[1].split()[0]
