"""The servers: a throwaway cluster, and etcd in a throwaway folder. Both keep their promises to the disk, both
are reached through a unix socket."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from throwaway import Cluster

CLUSTER = Cluster("kv")
PATIENCE = 60


class Postgres:
    def __enter__(self):
        CLUSTER.run("remove")
        CLUSTER.run("start", "fsync = on", "max_connections = 200")
        CLUSTER.sql("CREATE EXTENSION pgcache")
        return self

    def __exit__(self, *_):
        CLUSTER.run("remove")

    def version(self) -> str:
        return f"Postgres {CLUSTER.sql('SHOW server_version')}"

    def prepare(self, storage: str, watched: bool) -> None:
        CLUSTER.sql("SELECT cache_drop(old) FROM to_regclass('kv') AS old WHERE old IS NOT NULL")
        CLUSTER.sql(f"SELECT cache_create('kv', storage => '{storage}')")
        if watched:
            CLUSTER.sql("SELECT cache_watch('kv')")

    def where(self) -> list[str]:
        place = CLUSTER.address()
        return ["--where", f"host={place['PGHOST']} port={place['PGPORT']} user=postgres dbname=postgres"]


class Etcd:
    """At its defaults, but for the unix sockets, which it makes where it is started."""

    def __enter__(self):
        # Beside the cluster: on the same disk, and where a socket's path is short enough.
        self.folder = Path(tempfile.mkdtemp(prefix="etcd-", dir=Path(CLUSTER.address()["PGHOST"]).parent))
        client, peer = "unix://client:1", "unix://peer:1"
        words = ["etcd", "--data-dir", "data", "--listen-client-urls", client, "--advertise-client-urls", client]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.log = self.folder / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while not (self.folder / "client:1").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                text = self.log.read_text(encoding="utf-8")
                self.__exit__()
                sys.exit(f"kv: etcd did not start:\n{text}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder)

    def version(self) -> str:
        text = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
        return text.splitlines()[0].replace(" Version:", "")

    def prepare(self, _system: str, _watched: bool) -> None:
        """Every load loads its own entries over those that are there."""

    def where(self) -> list[str]:
        return ["--store", "etcd", "--where", f"unix://{self.folder / 'client:1'}"]


def has_etcd() -> bool:
    return shutil.which("etcd", path=os.environ["PATH"]) is not None
