"""The Go server in front of a store: started for one system, stopped by its own pid."""

import re
import subprocess
import time

from rounds.command import RoundError
from rounds.postgres_server import DATABASE

from .plan import SERVER


class WebServer:
    def __init__(self, store, plan):
        self.store, self.plan = store, plan
        self.log = plan.out / f"web-{store.system.name}.log"

    def __enter__(self):
        with open(self.log, "w", encoding="utf-8") as log:
            words = [SERVER, "-connections", self.plan.connections, *self.behind()]
            self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        self.url = f"http://{self.wait_for_address()}"
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)

    def behind(self):
        if not self.store.system.is_postgres:
            return ["-redis", self.store.socket]
        host, port = self.store.tool_connection[1], self.store.env["PGPORT"]
        where = f"host={host} port={port} user=postgres dbname={DATABASE} sslmode=disable"
        return [
            "-postgres",
            where,
            "-read-sql",
            self.store.statement("read"),
            "-write-sql",
            self.store.statement("write"),
        ]

    def wait_for_address(self):
        for _ in range(200):
            if found := re.search(r"listening on (\S+)", self.log.read_text()):
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RoundError(f"the web server did not start: see {self.log}")

    @property
    def pid(self):
        return self.process.pid
