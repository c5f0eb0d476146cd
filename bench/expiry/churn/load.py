"""One case on one system: a server, the load, and what is seen of the table meanwhile."""

import subprocess
import threading
import time
from types import SimpleNamespace

from rounds.postgres_server import DATABASE, PostgresServer

SLICES = 5  # of the second half, for the spread of the latencies

SIZES = """SELECT pg_relation_size('bench'), pg_indexes_size('bench'),
coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0),
pg_stat_get_tuples_updated(oid), pg_stat_get_tuples_hot_updated(oid), pg_stat_get_tuples_deleted(oid)
FROM pg_class WHERE oid = 'bench'::regclass"""

# Reads the table from end to end, so it is asked seldom. Rows that are live; rows that have expired in the last two
# intervals and are still there; the longest time that a row has been expired for.
ROWS = """SELECT count(*) FILTER (WHERE expires_at > clock_timestamp()),
count(*) FILTER (WHERE expires_at <= clock_timestamp() AND expires_at > clock_timestamp() - interval '{window} s'),
coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(expires_at))), 0) FROM bench"""


class Run:
    def __init__(self, case, system, seconds, options):
        self.case, self.system, self.seconds, self.options = case, system, seconds, options
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
            version = self.server.version()
        self.server.remove()
        return {"case": self.case.name, "system": self.system.name, "seconds": self.seconds, "server": version,
                "interval": self.interval, "fresh_row": self.fresh_row, "samples": self.samples,
                "latency": transactions}  # fmt: skip

    def prepare(self):
        server, case = self.server, self.case
        server.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
        for statement in [*self.system.create.split("; "), *case.prepare.split("; ")]:
            if statement:
                server.sql(statement)
        self.fresh_row = self.fresh_bytes() / case.fresh_rows

    def fresh_bytes(self):
        """A table like the one that is measured, its rows written once, in no order of their keys."""
        server, case = self.server, self.case
        fillfactor = server.sql("SELECT coalesce(substring(reloptions::text FROM 'fillfactor=([0-9]+)'), '100') "
                                "FROM pg_class WHERE oid = 'bench'::regclass")  # fmt: skip
        server.sql(f"CREATE UNLOGGED TABLE fresh (LIKE bench INCLUDING INDEXES) WITH (fillfactor = {fillfactor})",
                   f"INSERT INTO fresh SELECT {case.fresh_key}, {case.fresh_value}, now() "
                   f"FROM generate_series(1, {case.fresh_rows}) AS f (n) ORDER BY md5(f.n::text)")  # fmt: skip
        taken = int(server.sql("SELECT pg_total_relation_size('fresh')"))
        server.sql("DROP TABLE fresh")
        return taken

    def script(self, name, draw, statement):
        low, high = (round(seconds * self.options.scale * 1000) for seconds in self.case.ttl)
        ttl = "make_interval(secs => :ttl / 1000.0)"
        text = statement.format(key=self.case.key, value=self.case.value, ttl=ttl)
        draw = draw.format(keys=self.case.keys)
        file = self.options.out / f"{self.case.name}_{self.system.name}_{name}.sql"
        file.write_text(f"{draw}\n\\set ttl random({low}, {high})\n{text};\n")
        return file

    def pgbench(self):
        """Half gets, half sets, at full speed; a sample of the latencies of the second half, by script."""
        case, began = self.case, time.time()
        scripts = [self.script("set", case.draw, self.system.set), self.script("get", case.draw_get, self.system.get)]
        logs = self.options.out / f"{self.case.name}_{self.system.name}_log"
        words = [self.server.bin / "pgbench", *self.server.connection, "-n", "-M", "prepared"]
        words += ["-c", self.options.clients, "-j", 2, "-T", self.seconds, "-D", "n=0", "-l", "--sampling-rate", case.sampling]
        words += ["--log-prefix", logs]
        words += [*(word for script in scripts for word in ("-f", script)), DATABASE]
        subprocess.run([str(word) for word in words], check=True, capture_output=True)
        half, slice_seconds = began + self.seconds / 2, self.seconds / 2 / SLICES
        latencies = [[[] for _ in range(SLICES)] for _ in scripts]
        for file in self.options.out.glob(f"{logs.name}.*"):
            for line in file.read_text().splitlines():
                fields = line.split()
                place = int((int(fields[4]) + int(fields[5]) / 1e6 - half) // slice_seconds)
                if 0 <= place < SLICES:
                    latencies[int(fields[3])][place].append(int(fields[2]))
            file.unlink()
        sampled = case.sampling * self.seconds / 2
        return {name: summary(slices, sampled) for name, slices in zip(("set", "get"), latencies)}

    def watch(self):
        """Sizes about 200 times in all; rows 25 times."""
        began, next_rows = time.time(), 0.0
        step = max(0.2, self.seconds / 200)
        while not self.stop.wait(step):
            now = time.time() - began
            heap, index, toast, updated, hot, deleted = map(int, self.server.sql(SIZES).split("|"))
            sample = {"t": now, "heap": heap, "index": index, "toast": toast, "updated": updated, "hot": hot,
                      "deleted": deleted}  # fmt: skip
            if now >= next_rows:
                next_rows = now + self.seconds / 25
                live, waiting, lag = self.server.sql(ROWS.format(window=2 * self.interval)).split("|")
                expired = max(int(waiting), deleted - self.deleted_before(now - 2 * self.interval))
                sample |= {"lived": int(live) + expired, "live": int(live), "lag": float(lag)}
            self.samples.append(sample)

    def deleted_before(self, moment):
        return max((s["deleted"] for s in self.samples if s["t"] <= moment), default=0)

    def delete_by_cron(self):
        """Each interval; one that takes longer is followed at once by the next that is due."""
        due = time.time() + self.interval
        while not self.stop.wait(max(0, due - time.time())):
            self.server.sql("DELETE FROM bench WHERE expires_at <= now()")
            due += self.interval


def summary(slices, sampled_seconds):
    together = sorted(latency for one in slices for latency in one)
    return {"per_second": len(together) / sampled_seconds, "p50_us": at(together, 0.5), "p99_us": at(together, 0.99),
            "p99_us_of_slices": [at(sorted(one), 0.99) for one in slices]}  # fmt: skip


def at(latencies, share):
    return latencies[min(len(latencies) - 1, int(len(latencies) * share))] if latencies else 0
