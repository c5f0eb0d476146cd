"""A throwaway memcached: defaults, with the memory that the system gives it."""

import os
import socket

from . import program
from .command import RoundError
from .own_process import OwnProcess


class MemcachedServer(OwnProcess):
    protocol = "memcached"

    def words(self):
        server = program.path(self.system.program, self.system.suite)
        where = ["-l", "127.0.0.1", "-p", self.port, "-U", "0"] if self.plan.tcp else ["-s", self.path]
        who = ["-u", "root"] if os.geteuid() == 0 else []  # it does not run as root unless told to
        return [server, *where, *who, *self.system.options]

    def answers(self):
        try:
            return self.ask("version").startswith("VERSION")
        except OSError:
            return False

    def ask(self, line):
        """One command; the answer up to its last line."""
        family, address = (socket.AF_INET, ("127.0.0.1", self.port)) if self.plan.tcp else (socket.AF_UNIX, self.path)
        with socket.socket(family) as connection:
            connection.settimeout(60)
            connection.connect(address)
            connection.sendall(line.encode() + b"\r\n")
            answer = b""
            while not answer.endswith((b"END\r\n", b"OK\r\n", b"ERROR\r\n")) and not answer.startswith(b"VERSION"):
                part = connection.recv(65536)
                if not part:
                    raise RoundError(f"memcached closed the connection at {line!r}")
                answer += part
        return answer.decode()

    def stat(self, name):
        lines = (line.split() for line in self.ask("stats").splitlines())
        return int(next(words[2] for words in lines if words[:2] == ["STAT", name]))

    def load(self):
        self.ask("flush_all")
        self.preload()

    def entries(self):
        return self.stat("curr_items")

    def settings(self):
        return {"options": " ".join(self.system.options) or "(none)"}

    def disk_mb(self):
        return 0.0

    def version(self):
        return f"memcached {program.version('memcached', self.system.suite)}"
