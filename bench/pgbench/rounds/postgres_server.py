"""A throwaway Postgres: stock settings, started by scripts/cluster.sh, a new database `rounds` for each load.

cluster.sh does without fsync and preloads pg_cron, which is right for tests and wrong here: both are put back to stock.
"""

import os
import shlex
import signal
from pathlib import Path

from . import law
from .command import output
from .plan import ROOT

CLUSTER = ROOT / "scripts/cluster.sh"
NAME = f"bench-{os.getpid()}"
DATABASE = "rounds"
TIER = "shared_preload_libraries = 'pgcache'"
STOCK = ("fsync = on", "shared_preload_libraries = ''")
COUNTED = 2_000_000  # entries
READS = ("hot_hits", "table_hits", "misses")
SHOWN = ("shared_buffers", "fsync", "synchronous_commit", "max_wal_size", "shared_preload_libraries")


class PostgresServer:
    def __init__(self, system, plan):
        self.system, self.plan = system, plan
        self.env = {}

    def __enter__(self):
        output([CLUSTER, "start", NAME, *STOCK, *self.conf()])
        exports = output([CLUSTER, "env", NAME])
        self.env = dict(word.split("=", 1) for word in shlex.split(exports) if "=" in word)
        return self

    def conf(self):
        tcp = ["listen_addresses = '127.0.0.1'"] if self.plan.tcp else []
        many = [f"max_connections = {self.plan.clients + 20}"] if self.plan.clients > 80 else []
        tier = [TIER, f"pgcache.hot_size = '{self.plan.tier_mb}MB'"] if self.system.tier else []
        return [*tcp, *many, *tier, *self.plan.conf]

    def __exit__(self, failed, *_):
        """After an error the server may be unable to stop in order; what it holds is thrown away anyway."""
        if failed:
            os.kill(self.pid, signal.SIGQUIT)
        else:
            output([CLUSTER, "stop", NAME])

    def remove(self):
        output([CLUSTER, "remove", NAME])

    @property
    def bin(self):
        return Path(self.env["PATH"].split(":")[0])

    @property
    def socket(self):
        port = self.env["PGPORT"]
        return f"127.0.0.1:{port}" if self.plan.tcp else f"{self.env['PGHOST']}/.s.PGSQL.{port}"

    @property
    def pid(self):
        return int(Path(self.env["PGHOST"], "data/postmaster.pid").read_text().split()[0])

    @property
    def connection(self):
        """For psql."""
        return ["-h", self.env["PGHOST"], "-p", self.env["PGPORT"], "-U", "postgres"]

    @property
    def tool_connection(self):
        """For pgbench."""
        return ["-h", "127.0.0.1", *self.connection[2:]] if self.plan.tcp else self.connection

    def sql(self, *statements, database=DATABASE):
        words = [self.bin / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *self.connection]
        return output([*words, *(part for text in statements for part in ("-c", text)), database]).strip()

    def load(self):
        """Empty it, fill it, and leave it as a server that has been up for a while: vacuumed, checkpointed."""
        rows = law.rows_sql(self.plan.entries, law.value(self.plan.value_size))
        # By force: the extension's own worker may be at work in the one of the repetition before.
        recreate = (f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)", f"CREATE DATABASE {DATABASE}")
        self.sql("SET client_min_messages = error", *recreate, database="postgres")
        self.sql(self.system.create)
        # One transaction each: one that has written reads its tables, and would heat no tier.
        self.sql(*self.system.load.format(rows=rows).split("; "))
        self.sql("VACUUM (ANALYZE) bench")
        self.sql("CHECKPOINT")

    @property
    def slow_to_scan(self):
        """The view over many millions of entries in memory takes minutes."""
        return self.system.name == "pgcache_memory" and self.plan.entries > COUNTED

    def entries(self):
        """Counted, where that is a matter of seconds; else the tier's word is taken."""
        if self.slow_to_scan:
            return self.tier_entries()
        return int(self.sql("SELECT count(*) FROM bench"))

    def statement(self, round_name):
        """The SQL of a script with parameters in the place of what pgbench computes: for the other client."""
        text = self.script(round_name).read_text().splitlines()[-1].rstrip(";")
        return text.replace(f"'{law.PREFIX}' || :n", "$1").replace(":value", "$2")

    def script(self, round_name):
        return self.scripts / f"{round_name}_{self.system.scripts}.sql"

    @property
    def scripts(self):
        return Path(__file__).resolve().parents[1]

    def settings(self):
        tier = ("pgcache.hot_size",) if self.system.tier else ()
        return {name: self.sql(f"SHOW {name}") for name in (*SHOWN, *tier)}

    def counters(self):
        """What only ever grows: bytes of WAL, transaction ids given out, and where reads were answered."""
        text = self.sql("SELECT pg_current_wal_insert_lsn() - '0/0', txid_snapshot_xmax(txid_current_snapshot())")
        found = dict(zip(("wal_bytes", "xids"), map(int, text.split("|"))))
        if self.system.tier:
            sums = ", ".join(f"sum({name})" for name in READS)
            found |= dict(zip(READS, map(int, self.sql(f"SELECT {sums} FROM pgcache.stats").split("|"))))
        return found

    def tier_entries(self):
        return int(self.sql("SELECT entries FROM pgcache.hot_tier"))

    def disk_mb(self):
        return int(self.sql("SELECT pg_total_relation_size('bench')")) / 1024**2

    def version(self):
        return "Postgres " + self.sql("SHOW server_version")
