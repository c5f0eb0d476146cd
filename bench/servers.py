"""Starts throwaway servers, each with its own socket, and stops them by pid: Postgres through scripts/cluster.sh, the
others as child processes."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import key_distribution as kd, scripts
from .base import ROOT, BenchError, drive, driver_words, output
from .systems import HOT, RESP_MEMORY, System

CLUSTER, DATABASE = ROOT / "scripts/cluster.sh", "bench"
TIER = "shared_preload_libraries = 'pgcache'"
# cluster.sh turns fsync off and preloads pg_cron, which is right for tests and wrong here: both are reset to their
# defaults.
STOCK = ("fsync = on", "shared_preload_libraries = ''")
COUNTED = 2_000_000  # entries
# Enough clients that no core sleeps between two requests. With fewer clients, a rate would measure how fast the machine
# wakes up.
CLIENTS = 32
PATIENCE = 60  # seconds, for a server to start in
READS = ("hot_hits", "table_hits", "misses")
SHOWN = ("shared_buffers", "fsync", "synchronous_commit", "max_wal_size", "shared_preload_libraries")
REDIS_SHOWN = ("save", "appendonly", "maxmemory", "maxmemory-policy", "io-threads")


@dataclass(frozen=True)
class Setup:
    """How a server is started and loaded."""

    out: Path
    entries: int = 0
    value_size: int = 37
    clients: int = CLIENTS
    tcp: bool = False
    tier_mb: int = 2048
    conf: tuple = ()  # lines for postgresql.conf


def of(system, setup):
    if system.is_postgres:
        return (Door if system.redis_protocol else Postgres)(setup, system)
    return (Redis if system.is_redis else Memcached)(setup, system)


class Postgres:
    """A Postgres with default settings, and a separate database."""

    database = DATABASE

    def __init__(self, setup, system=HOT):
        self.system, self.setup, self.env = system, setup, {}
        self.name = f"bench-{os.getpid()}"

    def __enter__(self):
        tier = [TIER, f"pgcache.hot_size = '{self.setup.tier_mb}MB'"] if self.system.tier else []
        output([CLUSTER, "start", self.name, *STOCK, *self.reached, *tier, *self.setup.conf])
        exports = output([CLUSTER, "env", self.name])
        self.env = dict(word.split("=", 1) for word in shlex.split(exports) if "=" in word)
        self.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
        return self

    @property
    def reached(self):
        """Returns the lines of the configuration that let the clients connect."""
        many = [f"max_connections = {self.setup.clients + 20}"] if self.setup.clients > 80 else []
        return [*many, *(["listen_addresses = '127.0.0.1'"] if self.setup.tcp else [])]

    def __exit__(self, failed, *_):
        """Stops the server immediately after an error, because it may be unable to stop in order, and its data is
        discarded anyway."""
        if failed:
            os.kill(self.pid, signal.SIGQUIT)
        for _ in range(20):
            if subprocess.run([CLUSTER, "remove", self.name], capture_output=True).returncode == 0:
                return
            time.sleep(0.5)

    @property
    def bin(self):
        return Path(self.env["PATH"].split(":")[0])

    @property
    def folder(self):
        return Path(self.env["PGHOST"])

    @property
    def socket(self):
        port = self.env["PGPORT"]
        return f"127.0.0.1:{port}" if self.setup.tcp else f"{self.folder}/.s.PGSQL.{port}"

    @property
    def pid(self):
        return int((self.folder / "data/postmaster.pid").read_text().split()[0])

    @property
    def connection(self):  # for psql
        return ["-h", self.folder, "-p", self.env["PGPORT"], "-U", "postgres"]

    @property
    def tool_connection(self):  # for pgbench
        return ["-h", "127.0.0.1", *self.connection[2:]] if self.setup.tcp else self.connection

    @property
    def to_driver(self):
        read, write = (scripts.statement(name) for name in (self.system.read, self.system.write))
        sql = {"database": DATABASE, "read_sql": read, "write_sql": write}
        return {"protocol": "postgres", "socket": self.socket, "offset": kd.PGBENCH_OFFSET, **sql}

    def sql(self, *statements, database=None):
        words = [self.bin / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *self.connection]
        return output([*words, *(part for text in statements for part in ("-c", text)), database or self.database]).strip()

    def number(self, statement):
        return int(self.sql(statement))

    @property
    def table(self):
        """The name of the cache in SQL."""
        return f"bench.{self.system.table}"

    def create(self):
        self.set_up(0)

    def load(self):
        """Loads the entries, and leaves the server as one that has been running for a while: vacuumed, checkpointed."""
        self.set_up(self.setup.entries)

    def set_up(self, entries):
        given = {"scale": scripts.scale(entries), "only": self.system.table, "value": kd.value(self.setup.value_size)}
        # A long value does not fit into a program argument.
        lines = [f"\\set {name} '{text}'" for name, text in given.items()] + [f"\\i {scripts.SETUP}", ""]
        output([self.bin / "psql", "-X", "-q", *self.connection, DATABASE], input="\n".join(lines))

    @property
    def slow_to_scan(self):
        """Returns whether scanning takes minutes, as the view over many millions of entries in memory does."""
        return self.system.name == "pgcache_memory" and self.setup.entries > COUNTED

    def entries(self):
        """Counts the entries if a count takes only seconds; otherwise returns the tier's own number."""
        return self.tier_entries() if self.slow_to_scan else self.number(f"SELECT count(*) FROM {self.table}")

    def tier_entries(self):
        return self.number("SELECT entries FROM pgcache.hot_tier")

    def cache_bytes(self):
        """Returns the bytes of the shared region, as the server reports them."""
        return self.number("SELECT size FROM pgcache.hot_tier")

    def settings(self):
        tier = ("pgcache.hot_size",) if self.system.tier else ()
        return {name: self.sql(f"SHOW {name}") for name in (*SHOWN, *tier)}

    def counters(self):
        """Returns counters that only grow: bytes of WAL, assigned transaction ids, and where reads were served."""
        text = self.sql("SELECT pg_current_wal_insert_lsn() - '0/0', txid_snapshot_xmax(txid_current_snapshot())")
        found = dict(zip(("wal_bytes", "xids"), map(int, text.split("|"))))
        if self.system.tier:
            sums = ", ".join(f"coalesce(sum({name}), 0)" for name in READS)
            found |= dict(zip(READS, map(int, self.sql(f"SELECT {sums} FROM pgcache.stats").split("|"))))
        return found

    def disk_mb(self):
        return self.number(f"SELECT pg_total_relation_size('{self.table}')") / 1024**2

    def version(self):
        return "Postgres " + self.sql("SHOW server_version")


def wait_for_resp(path):
    """Waits until the Redis protocol answers on this socket. The server waits for its database, which it looks up every
    few seconds."""
    end = time.monotonic() + PATIENCE
    while not (Path(path).exists() and output(["redis-cli", "-s", path, "PING"]).strip() == "PONG"):
        if time.monotonic() > end:
            raise BenchError("the Redis protocol of pgcache does not answer")
        time.sleep(0.05)


class Door(Postgres):
    """A cache of bytea, used by the Redis protocol."""

    database = "postgres"
    table = "public.door"
    # The caches by number of their Redis database: the name, and the statement that creates it.
    CACHES = ((table, "storage => '{storage}', value_type => 'bytea'"),)

    def __init__(self, setup, system=RESP_MEMORY):
        super().__init__(setup, system)
        self.port = free_port() if setup.tcp else 0

    @property
    def reached(self):
        """Returns the lines of the configuration for the Redis protocol. No client is a session of SQL."""
        caches = ",".join(name for name, _ in self.CACHES)
        named = {"port": self.port, "socket": "resp.sock", "caches": caches, "default_role": "postgres"}
        return [f"pgcache.resp_{name} = '{value}'" for name, value in {**named, "max_clients": self.setup.clients + 100}.items()]

    def __enter__(self):
        super().__enter__()
        try:
            self.create()
            wait_for_resp(self.path)
        except BaseException:
            self.__exit__(True)
            raise
        return self

    def create(self):
        self.sql("CREATE EXTENSION pgcache")
        for name, made in self.CACHES:
            self.sql(f"SELECT cache_create('{name}', {made.format(storage=self.system.table)})")

    @property
    def path(self):
        return f"{self.folder}/data/resp.sock"

    def cli(self, *words):
        return output(["redis-cli", "-s", self.path, *words]).strip()

    @property
    def tool_connection(self):  # for redis-benchmark
        return ["-h", "127.0.0.1", "-p", self.port] if self.setup.tcp else ["-s", self.path]

    @property
    def to_driver(self):
        return {"protocol": "redis", "socket": f"127.0.0.1:{self.port}" if self.setup.tcp else self.path}

    def load(self):
        """Loads the entries. Leaves a table as on a server that has been running for a while: vacuumed, with a copy of
        each entry in the hot tier."""
        value = kd.value(self.setup.value_size)
        drive("requests", **self.to_driver, workload="preload", entries=self.setup.entries, value=value)
        if self.system is not RESP_MEMORY:
            self.sql(f"VACUUM (ANALYZE) {self.table}", f"SELECT count(cache_get_bytes(key, '{self.table}')) FROM {self.table}")
            self.sql("CHECKPOINT")

    def entries(self):
        return int(self.cli("DBSIZE"))

    def version(self):
        return "pgcache on " + super().version()


class OwnProcess:
    """A server that is a child process. A subclass defines how the program is called and when it answers."""

    def __init__(self, setup, system):
        self.setup, self.system = setup, system
        self.process = None

    def __enter__(self):
        self.run_folder = Path(tempfile.mkdtemp(prefix="pgcache-bench-"))  # a socket's path must be short
        self.data = Path(tempfile.mkdtemp(prefix=f"{self.system.name}-", dir=self.setup.out))
        self.path = str(self.run_folder / "socket")
        self.port = free_port() if self.setup.tcp else 0
        self.log = self.setup.out / f"{self.system.name}.log"
        with open(self.log, "w", encoding="utf-8") as log:
            words = [str(word) for word in self.words()]
            self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.run_folder)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            if self.answers():
                return
            time.sleep(0.05)
        raise BenchError(f"{self.system.label} did not start: see {self.log}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.forget()
        self.process.terminate()
        self.process.wait(timeout=120)
        shutil.rmtree(self.run_folder)
        shutil.rmtree(self.data)
        if self.log.exists() and self.process.returncode in (0, -signal.SIGTERM):
            self.log.unlink()

    def forget(self):
        """Discards state that keeps a server from stopping at once."""

    @property
    def pid(self):
        return self.process.pid

    @property
    def socket(self):  # in the form that the driver accepts
        return f"127.0.0.1:{self.port}" if self.setup.tcp else self.path

    @property
    def to_driver(self):
        return {"protocol": self.protocol, "socket": self.socket}

    def create(self):
        """Prepares the server for use: nothing to do here."""

    def load(self):
        value = kd.value(self.setup.value_size)
        drive("requests", **self.to_driver, workload="preload", entries=self.setup.entries, value=value)

    def counters(self):
        """Returns no counters: only Postgres has those that a run reports."""
        return {}

    def disk_mb(self):
        return 0.0


class Redis(OwnProcess):
    """Redis or Valkey, with built-in defaults, snapshots included, unless the system says otherwise."""

    protocol = "redis"

    def words(self):
        where = ["--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.path, "--dir", self.data]
        return [program(self.system.program, self.system.suite), *where, *self.system.options]

    def answers(self):
        return Path(self.path).exists() and self.cli("PING") == "PONG"

    def cli(self, *words):
        return output(["redis-cli", "-s", self.path, *words]).strip()

    def forget(self):
        """Discards the data, because otherwise the server would save everything before it stops: minutes for 30 million
        entries, and no run reads the file."""
        if Path(self.path).exists():
            self.cli("CONFIG", "SET", "save", "")

    @property
    def tool_connection(self):  # for redis-benchmark
        return ["-h", "127.0.0.1", "-p", self.port] if self.setup.tcp else ["-s", self.path]

    def load(self):
        """Loads the entries, and also writes the snapshot, because Postgres is checkpointed, too."""
        super().load()
        self.cli("SAVE")

    def entries(self):
        return int(self.cli("DBSIZE"))

    def cache_bytes(self):
        """Returns the bytes that the allocator has handed out."""
        return self.info("memory", "used_memory_peak")

    def settings(self):
        return {name: self.cli("CONFIG", "GET", name).partition("\n")[2] or "(none)" for name in REDIS_SHOWN}

    def snapshots(self):
        """Returns the number of snapshots so far, including the one after the preload."""
        return self.info("persistence", "rdb_saves")

    def info(self, section, field):
        lines = self.cli("INFO", section).splitlines()
        return next((int(line.split(":")[1]) for line in lines if line.startswith(f"{field}:")), None)

    def disk_mb(self):
        return sum(file.stat().st_size for file in self.data.glob("*.rdb")) / 1024**2

    def version(self):
        name = "Valkey" if self.system.program.startswith("valkey") else "Redis"
        return f"{name} {program_version(self.system.program, self.system.suite)}"


class Memcached(OwnProcess):
    """memcached with default settings, with the memory that the system gives it."""

    protocol = "memcached"

    def __enter__(self):
        if not self.system.suite:
            output([ROOT / "scripts/need.sh", "memcached"])
        return super().__enter__()

    def words(self):
        where = ["-l", "127.0.0.1", "-p", self.port, "-U", "0"] if self.setup.tcp else ["-s", self.path]
        who = ["-u", "root"] if os.geteuid() == 0 else []  # it does not run as root without this option
        return [program(self.system.program, self.system.suite), *where, *who, *self.system.options]

    def answers(self):
        try:
            return self.ask("version").startswith("VERSION")
        except OSError:
            return False

    def ask(self, line):
        """Sends one command; returns the answer up to its last line."""
        family, address = (socket.AF_INET, ("127.0.0.1", self.port)) if self.setup.tcp else (socket.AF_UNIX, self.path)
        with socket.socket(family) as connection:
            connection.settimeout(60)
            connection.connect(address)
            connection.sendall(line.encode() + b"\r\n")
            answer = b""
            while not answer.endswith((b"END\r\n", b"OK\r\n", b"ERROR\r\n")) and not answer.startswith(b"VERSION"):
                part = connection.recv(65536)
                if not part:
                    raise BenchError(f"memcached closed the connection at {line!r}")
                answer += part
        return answer.decode()

    def stat(self, name, of="stats"):
        lines = (line.split() for line in self.ask(of).splitlines())
        return int(next(words[2] for words in lines if words[:2] == ["STAT", name]))

    def entries(self):
        return self.stat("curr_items")

    def cache_bytes(self):
        """Returns the bytes of slab pages and hash table."""
        return self.stat("total_malloced", "stats slabs") + self.stat("hash_bytes")

    def settings(self):
        return {"options": " ".join(self.system.options) or "(none)"}

    def version(self):
        return f"memcached {program_version('memcached', self.system.suite)}"


class Etcd(OwnProcess):
    """One member of etcd with default settings, except for the unix sockets, which it creates in its working folder."""

    def __init__(self, setup):
        super().__init__(setup, System("etcd", "etcd", "#3b6ea5", program="etcd"))

    def words(self):
        client, peer = "unix://client:1", "unix://peer:1"
        urls = {"listen-client": client, "advertise-client": client, "listen-peer": peer, "initial-advertise-peer": peer}
        words = ["etcd", "--data-dir", self.data, "--initial-cluster", f"default={peer}"]
        return [*words, *(word for name, url in urls.items() for word in (f"--{name}-urls", url))]

    @property
    def socket(self):
        return str(self.run_folder / "client:1")

    def answers(self):
        return Path(self.socket).exists()

    def version(self):
        return output(["etcd", "--version"]).splitlines()[0].replace(" Version:", "")


class Web(OwnProcess):
    """The web server in front of a store."""

    def __init__(self, store, connections):
        super().__init__(store.setup, System("web", "the web server", "#444444", program="web"))
        self.store, self.connections = store, connections

    def words(self):
        where = {name: text for name, text in self.store.to_driver.items() if name != "offset"}
        return driver_words("web", {**where, "connections": self.connections})

    @property
    def socket(self):
        found = re.search(r"listening on (\S+)", self.log.read_text())
        return found and found.group(1)

    def answers(self):
        return self.socket is not None


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@cache
def competitors(suite):
    return Path(output([ROOT / "scripts/competitors.sh", suite]).strip())


def program(name, suite=""):
    """Returns the machine's own program, or that of a newer suite, unpacked beside the system."""
    return str(competitors(suite) / "run" / name) if suite else name


def program_version(name, suite=""):
    """Returns only the version number, which each program prints in its own way."""
    words = output([program(name, suite), "--version"]).replace("v=", "").split()
    return next(word for word in words if word[0].isdigit())
