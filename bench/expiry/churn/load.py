"""One case on one system: a server, the load, and what is seen of the table meanwhile."""

import subprocess
import threading
import time
from types import SimpleNamespace

from rounds.postgres_server import DATABASE, PostgresServer

GETS_PER_SET = 1
FRESH_ROWS = {"a": 100_000, "b": 100_000, "c": 200}
SAMPLING = 0.02

SIZES = """SELECT pg_relation_size('bench'), pg_indexes_size('bench'),
coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0),
pg_stat_get_tuples_updated(oid), pg_stat_get_tuples_hot_updated(oid), pg_stat_get_tuples_deleted(oid)
FROM pg_class WHERE oid = 'bench'::regclass"""

# Reads the table from end to end, so it is asked seldom. Rows that lived in the last two intervals and are still
# there; rows that are live; the longest time that a row has been expired for.
ROWS = """SELECT count(*) FILTER (WHERE expires_at > clock_timestamp() - interval '{window} s'),
count(*) FILTER (WHERE expires_at > clock_timestamp()),
coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(expires_at))), 0) FROM bench"""


class Run:
    def __init__(self, case, system, options):
        self.case, self.system, self.options = case, system, options
        self.interval = 10 * options.scale
        settings = [line.format(ms=round(self.interval * 1000)) for line in system.settings]
        self.server = PostgresServer(SimpleNamespace(tier=False), SimpleNamespace(tcp=False, clients=8, conf=settings))
        self.samples, self.stop = [], threading.Event()

    def measure(self):
        with self.server:
            self.prepare()
            threads = [threading.Thread(target=self.watch)]
            if self.system.delete_by_cron:
                threads.append(threading.Thread(target=self.delete_by_cron))
            for thread in threads:
                thread.start()
            try:
                transactions = self.pgbench()
            finally:
                self.stop.set()
                for thread in threads:
                    thread.join()
        self.server.remove()
        return {"case": self.case.name, "system": self.system.name, "interval": self.interval,
                "fresh_row": self.fresh_row, "samples": self.samples, "latency": transactions}  # fmt: skip

    def prepare(self):
        server, case = self.server, self.case
        server.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
        for statement in [*self.system.create.split("; "), *case.prepare.split("; ")]:
            if statement:
                server.sql(statement)
        rows = FRESH_ROWS[case.name]
        server.sql("CREATE UNLOGGED TABLE fresh (LIKE bench INCLUDING INDEXES) WITH (fillfactor = 85)",
                   f"INSERT INTO fresh SELECT 'key:' || md5(f.n::text), {case.fresh_value}, now() "
                   f"FROM generate_series(1, {rows}) AS f (n)")  # fmt: skip
        self.fresh_row = int(server.sql("SELECT pg_total_relation_size('fresh')")) / rows
        server.sql("DROP TABLE fresh")

    def script(self, name, statement):
        low, high = (round(seconds * self.options.scale * 1000) for seconds in self.case.ttl)
        ttl = "make_interval(secs => :ttl / 1000.0)"
        text = statement.format(key=self.case.key, value=self.case.value, ttl=ttl)
        draw = self.case.draw.format(keys=self.case.keys)
        file = self.options.out / f"{self.case.name}_{self.system.name}_{name}.sql"
        file.write_text(f"{draw}\n\\set ttl random({low}, {high})\n{text};\n")
        return file

    def pgbench(self):
        """Half gets, half sets, at full speed; a sample of all latencies, by script."""
        scripts = [self.script("set", self.system.set), self.script("get", self.system.get)]
        logs = self.options.out / f"{self.case.name}_{self.system.name}_log"
        words = [self.server.bin / "pgbench", *self.server.connection, "-n", "-M", "prepared", "-c", self.options.clients]
        words += ["-j", 2, "-T", self.options.seconds, "-l", "--sampling-rate", SAMPLING, "--log-prefix", logs]
        words += [*(word for script in scripts for word in ("-f", script)), DATABASE]
        subprocess.run([str(word) for word in words], check=True, capture_output=True)
        latencies = {0: [], 1: []}
        for file in self.options.out.glob(f"{logs.name}.*"):
            for line in file.read_text().splitlines():
                fields = line.split()
                latencies[int(fields[3])].append(int(fields[2]))
            file.unlink()
        return {name: summary(latencies[number], self.options.seconds) for number, name in enumerate(("set", "get"))}

    def watch(self):
        """Sizes about 200 times in all; rows 25 times."""
        began, next_rows = time.time(), 0.0
        step = max(0.2, self.options.seconds / 200)
        while not self.stop.wait(step):
            now = time.time() - began
            heap, index, toast, updated, hot, deleted = map(int, self.server.sql(SIZES).split("|"))
            sample = {"t": now, "heap": heap, "index": index, "toast": toast, "updated": updated, "hot": hot,
                      "deleted": deleted}  # fmt: skip
            if now >= next_rows:
                next_rows = now + self.options.seconds / 25
                lived, live, lag = self.server.sql(ROWS.format(window=2 * self.interval)).split("|")
                sample |= {"lived": int(lived) + self.deleted_since(now), "live": int(live), "lag": float(lag)}
            self.samples.append(sample)

    def deleted_since(self, now):
        """Rows that lived in the last two intervals and were deleted meanwhile."""
        before = [s["deleted"] for s in self.samples if s["t"] <= now - 2 * self.interval]
        return (self.samples[-1]["deleted"] if self.samples else 0) - (before[-1] if before else 0)

    def delete_by_cron(self):
        while not self.stop.wait(self.interval):
            self.server.sql("DELETE FROM bench WHERE expires_at <= now()")


def summary(latencies, seconds):
    latencies.sort()
    at = lambda share: latencies[min(len(latencies) - 1, int(len(latencies) * share))] if latencies else 0  # noqa: E731
    return {"per_second": len(latencies) / SAMPLING / seconds, "p50_us": at(0.5), "p99_us": at(0.99)}
