"""A throwaway Redis or Valkey: built-in defaults, snapshots included, unless the system says otherwise."""

from pathlib import Path

from . import program
from .command import output
from .own_process import OwnProcess

SHOWN = ("save", "appendonly", "maxmemory", "maxmemory-policy", "io-threads")


class RedisServer(OwnProcess):
    protocol = "redis"

    def words(self):
        server = program.path(self.system.program, self.system.suite)
        where = ["--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.path, "--dir", self.folder]
        return [server, *where, *self.system.options]

    def answers(self):
        return Path(self.path).exists() and self.cli("PING") == "PONG"

    def cli(self, *words):
        return output(["redis-cli", "-s", self.path, *words]).strip()

    def forget(self):
        """Else it would save everything before it stops: minutes for 30 million entries, and nobody reads it."""
        self.cli("CONFIG", "SET", "save", "")

    @property
    def tool_connection(self):
        """For redis-benchmark."""
        return ["-h", "127.0.0.1", "-p", self.port] if self.plan.tcp else ["-s", self.path]

    def load(self):
        """Empty it, fill it, and write the snapshot, as Postgres is checkpointed."""
        self.cli("FLUSHALL")
        self.preload()
        self.cli("SAVE")

    def entries(self):
        return int(self.cli("DBSIZE"))

    def settings(self):
        return {name: self.cli("CONFIG", "GET", name).partition("\n")[2] or "(none)" for name in SHOWN}

    def snapshots(self):
        """Snapshots it has taken so far, the one after the preload among them."""
        return self.info("persistence", "rdb_saves")

    def info(self, section, field):
        lines = self.cli("INFO", section).splitlines()
        return next((int(line.split(":")[1]) for line in lines if line.startswith(f"{field}:")), None)

    def disk_mb(self):
        return sum(file.stat().st_size for file in self.folder.glob("*.rdb")) / 1024**2

    def version(self):
        name = "Valkey" if self.system.program.startswith("valkey") else "Redis"
        return f"{name} {program.version(self.system.program, self.system.suite)}"
