"""Measures expiry while entries are constantly replaced: space on disk, HOT updates, how long expired rows stay, and
the cost.

Half of the requests are gets and half are sets, at full speed. Four methods of removing expired rows are compared.
"""

import subprocess
import threading
import time
from dataclasses import dataclass
from statistics import median

from .base import Journal, ground, insist, named, say
from .charts import FAINT, head, plt
from .servers import DATABASE, Postgres, Setup
from .systems import System
from .tables import markdown

SIZES = {
    "full": {"seconds": None, "repeats": 1, "each": "600", "scale": 1.0},
    "quick": {"repeats": 1, "each": "30", "scale": 0.1, "cases": "a,b", "systems": "worker,table"},
    "smoke": {"repeats": 1, "each": "6", "scale": 0.05, "cases": "b", "systems": "worker,table"},
}
MB = 1024**2
SLICES = 5  # parts of the second half, for the spread of the latencies

BENCH = 'CREATE UNLOGGED TABLE bench (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz)'
CACHE = "CREATE EXTENSION pgcache; SELECT cache_create('bench')"
UPSERT = (
    "INSERT INTO bench (key, value, expires_at) VALUES ({key}, {value}, clock_timestamp() + {ttl}) ON CONFLICT (key) "
    "DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"
)
SET, GET = "SELECT cache_set({key}, {value}, {ttl}, 'bench')", "SELECT cache_get({key}, 'bench')"
SELECT = "SELECT value FROM bench WHERE key = {key} AND (expires_at IS NULL OR expires_at > clock_timestamp())"
PRELOAD = "shared_preload_libraries = 'pgcache'"


@dataclass(frozen=True)
class Way:
    name: str
    label: str
    colour: str
    create: str
    set: str
    get: str
    settings: tuple = ()
    delete_by_cron: bool = False


WAYS = (
    Way("worker", "pgcache, worker on", "#1f9d8b", CACHE, SET, GET, (PRELOAD, "pgcache.expire_interval = '{ms}ms'")),
    Way("off", "pgcache, worker off", "#2f80c3", CACHE, SET, GET, (PRELOAD, "pgcache.expire_interval = 0")),
    Way("btree", "table, btree on the deadline, DELETE by cron", "#c8502d", BENCH + "; CREATE INDEX ON bench (expires_at)", UPSERT, SELECT, (), True),
    Way("table", "table, DELETE by cron", "#5f6b7a", BENCH, UPSERT, SELECT, (), True),
)


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    keys: int
    draw: str  # pgbench's meta commands that draw :i for a set
    draw_get: str  # pgbench's meta commands that draw :i for a get
    value: str
    fresh_key: str  # the key of row number n
    fresh_value: str
    fresh_rows: int
    ttl: tuple  # seconds, from and to
    sampling: float  # of the latencies
    prepare: str = ""


KEY, SHORT, LONG = "'key:' || :i", "repeat('x', 100)", "(SELECT value FROM long_values WHERE n = :j)"
LONG_VALUES = (
    "CREATE TABLE long_values AS SELECT n, (SELECT string_agg(md5(n || '-' || m), '') "
    "FROM generate_series(1, {md5s}) AS m) AS value FROM generate_series(1, 20) AS n"
)
ANY_KEY = "\\set i random(1, {keys})"
# A client counts its keys in :n, which keeps its value from transaction to transaction. A get reads one of the client's
# last 10,000 keys.
NEXT_KEY = "\\set n :n + 1\n\\set i hash(:n * 1000 + :client_id)"
LATE_KEY = "\\set m random(greatest(1, :n - 9999), greatest(1, :n))\n\\set i hash(:m * 1000 + :client_id)"
FRESH_KEY = "'key:' || f.n"
ANY_VALUE, FRESH_LONG = "\n\\set j random(1, 20)", "(SELECT value FROM long_values AS l WHERE l.n = 1 + f.n % 20)"

CASES = (
    Case("a", "a: 1 million keys overwritten at random, TTL 30 to 300 s", 1_000_000, ANY_KEY, ANY_KEY, SHORT,
         "'key:' || f.n * 10", SHORT, 100_000, (30, 300), 0.05),
    Case("b", "b: keys written once, TTL 60 s", 0, NEXT_KEY, LATE_KEY, SHORT,
         "'key:' || hashint8extended(f.n, 0)", SHORT, 100_000, (60, 60), 0.05),
    Case("c", "c: 100 KiB values overwritten, 1,000 keys", 1_000, ANY_KEY + ANY_VALUE, ANY_KEY, LONG, FRESH_KEY,
         FRESH_LONG, 200, (30, 300), 1, LONG_VALUES.format(md5s=3200)),
    Case("d", "d: 40 kB values overwritten, 300 keys", 300, ANY_KEY + ANY_VALUE, ANY_KEY, LONG, FRESH_KEY,
         FRESH_LONG, 200, (30, 300), 1, LONG_VALUES.format(md5s=1250)),
)  # fmt: skip


def add_options(parser):
    parser.add_argument("--each", help="seconds of a run; or one number for each case, comma separated (600)")
    parser.add_argument("--scale", type=float, help="of all TTLs and of the sweep interval of 10 s")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--cases", help="a,b,c,d")
    parser.add_argument("--systems", help="worker,off,btree,table")


def run(options):
    cases = named(CASES, options.cases)
    each = [int(number) for number in str(options.seconds or options.each).split(",")]
    each = each * len(cases) if len(each) == 1 else each
    insist(len(each) == len(cases), f"--each: one number, or one for each of the {len(cases)} cases")
    journal = Journal(options.out, ("case", "system"))
    for case, seconds in zip(cases, each):
        for way in named(WAYS, options.systems):
            if not journal.has(case.name, way.name):
                journal.add(Run(case, way, seconds, options).measure())
                say(f"{case.name}: {way.label}")
    if options.size == "smoke":
        assert_smoke(journal.rows)
    for case in cases:
        draw(options.out, case, [row for row in journal.rows if row["case"] == case.name])
    summary = [figures(row) for row in journal.rows]
    journal.report(summary, render(options, summary, journal.rows, journal.facts["machine"]))


SIZE_SQL = """SELECT pg_relation_size('bench'), pg_indexes_size('bench'),
coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0),
pg_stat_get_tuples_updated(oid), pg_stat_get_tuples_hot_updated(oid), pg_stat_get_tuples_deleted(oid)
FROM pg_class WHERE oid = 'bench'::regclass"""

# Scans the whole table, so it runs seldom; its alias makes expired rows visible. Returns the number of live rows, the
# number of existing rows that expired in the last two intervals, and the longest time for which an existing row has
# been expired.
ROWS_SQL = """SELECT count(*) FILTER (WHERE expires_at > clock_timestamp()),
count(*) FILTER (WHERE expires_at <= clock_timestamp() AND expires_at > clock_timestamp() - interval '{window} s'),
coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(expires_at))), 0) FROM bench AS pgcache_c"""


class Run:
    """One case on one system: a server, the load, and samples of the table during the load."""

    def __init__(self, case, way, seconds, options):
        self.case, self.way, self.seconds, self.options = case, way, seconds, options
        self.interval = 10 * options.scale
        conf = tuple(line.format(ms=round(self.interval * 1000)) for line in way.settings)
        self.server = Postgres(Setup(options.out, clients=options.clients, conf=conf), System("bench", "", ""))
        self.samples, self.stop = [], threading.Event()

    def measure(self):
        with self.server:
            self.server.sql(*[text for text in [*self.way.create.split("; "), *self.case.prepare.split("; ")] if text])
            self.fresh_row = self.fresh_bytes() / self.case.fresh_rows
            threads = [threading.Thread(target=self.watch)]
            if self.way.delete_by_cron:
                threads.append(threading.Thread(target=self.delete_by_cron))
            for thread in threads:
                thread.start()
            try:
                latency = self.pgbench()
            finally:
                self.stop.set()
                for thread in threads:
                    thread.join()
            version = self.server.version()
        return {"case": self.case.name, "system": self.way.name, "seconds": self.seconds, "server": version,
                "interval": self.interval, "fresh_row": self.fresh_row, "samples": self.samples, "latency": latency}  # fmt: skip

    def fresh_bytes(self):
        """Creates a table like the measured one, with its rows written once, in random order of their keys."""
        server, case = self.server, self.case
        fillfactor = server.sql("SELECT coalesce(substring(reloptions::text FROM 'fillfactor=([0-9]+)'), '100') "
                                "FROM pg_class WHERE oid = 'bench'::regclass")  # fmt: skip
        server.sql(f"CREATE UNLOGGED TABLE fresh (LIKE bench INCLUDING INDEXES) WITH (fillfactor = {fillfactor})",
                   f"INSERT INTO fresh SELECT {case.fresh_key}, {case.fresh_value}, now() "
                   f"FROM generate_series(1, {case.fresh_rows}) AS f (n) ORDER BY md5(f.n::text)")  # fmt: skip
        taken = server.number("SELECT pg_total_relation_size('fresh')")
        server.sql("DROP TABLE fresh")
        return taken

    def script(self, name, draw, statement):
        low, high = (round(seconds * self.options.scale * 1000) for seconds in self.case.ttl)
        text = statement.format(key=KEY, value=self.case.value, ttl="make_interval(secs => :ttl / 1000.0)")
        file = self.options.out / f"{name}.sql"
        file.write_text(f"{draw.format(keys=self.case.keys)}\n\\set ttl random({low}, {high})\n{text};\n")
        return file

    def pgbench(self):
        """Runs half gets and half sets at full speed; samples the latencies of the second half, by script."""
        case, began = self.case, time.time()
        scripts = [self.script("set", case.draw, self.way.set), self.script("get", case.draw_get, self.way.get)]
        logs = self.options.out / "pgbench_log"
        words = [self.server.bin / "pgbench", *self.server.connection, "-n", "-M", "prepared", "-c", self.options.clients, "-j", 2]
        words += ["-T", self.seconds, "-D", "n=0", "-l", "--sampling-rate", case.sampling, "--log-prefix", logs]
        words += [*(word for script in scripts for word in ("-f", script)), DATABASE]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        insist(done.returncode == 0, f"pgbench failed: {done.stderr[-600:]}")
        half, slice_seconds = began + self.seconds / 2, self.seconds / 2 / SLICES
        latencies = [[[] for _ in range(SLICES)] for _ in scripts]
        for file in self.options.out.glob(f"{logs.name}.*"):
            for fields in map(str.split, file.read_text().splitlines()):
                place = int((int(fields[4]) + int(fields[5]) / 1e6 - half) // slice_seconds)
                if 0 <= place < SLICES:
                    latencies[int(fields[3])][place].append(int(fields[2]))
            file.unlink()
        for script in scripts:
            script.unlink()
        sampled = case.sampling * self.seconds / 2
        return {name: by_slice(slices, sampled) for name, slices in zip(("set", "get"), latencies)}

    def watch(self):
        """Samples sizes about 200 times in all, and row counts 25 times."""
        began, next_rows = time.time(), 0.0
        step = max(0.2, self.seconds / 200)
        while not self.stop.wait(step):
            now = time.time() - began
            sizes = map(int, self.server.sql(SIZE_SQL).split("|"))
            sample = {"t": now, **dict(zip(("heap", "index", "toast", "updated", "hot", "deleted"), sizes))}
            if now >= next_rows:
                next_rows = now + self.seconds / 25
                live, waiting, lag = self.server.sql(ROWS_SQL.format(window=2 * self.interval)).split("|")
                before = max((s["deleted"] for s in self.samples if s["t"] <= now - 2 * self.interval), default=0)
                expired = max(int(waiting), sample["deleted"] - before)
                sample |= {"lived": int(live) + expired, "live": int(live), "lag": float(lag)}
            self.samples.append(sample)

    def delete_by_cron(self):
        """Deletes at each interval; if a deletion takes longer than an interval, the next one follows at once."""
        due = time.time() + self.interval
        while not self.stop.wait(max(0, due - time.time())):
            self.server.sql("DELETE FROM bench WHERE expires_at <= now()")
            due += self.interval


def by_slice(slices, sampled_seconds):
    together = sorted(latency for one in slices for latency in one)
    return {"per_second": len(together) / sampled_seconds, "p50_us": at(together, 0.5), "p99_us": at(together, 0.99),
            "p99_us_of_slices": [at(sorted(one), 0.99) for one in slices]}  # fmt: skip


def at(latencies, share):
    return latencies[min(len(latencies) - 1, int(len(latencies) * share))] if latencies else 0


def second_half(run, field):
    half = run["samples"][-1]["t"] / 2
    return [sample for sample in run["samples"] if sample["t"] >= half and field in sample]


def total(sample):
    return sample["heap"] + sample["index"] + sample["toast"]


def room(run):
    """Returns the largest size of the tables, divided by the size of a fresh table with the rows that lived in the last
    two sweep intervals. Sizes are sampled more often than row counts; between two counts the smaller one applies."""
    counts = second_half(run, "lived")
    spans = [(one["t"], other["t"], min(one["lived"], other["lived"])) for one, other in zip(counts, counts[1:])]
    return max((total(s) / (lived * run["fresh_row"]) for since, until, lived in spans if lived
                for s in run["samples"] if since <= s["t"] <= until), default=0)  # fmt: skip


def figures(run):
    counts, last = second_half(run, "live"), run["samples"][-1]
    return {
        **{name: run[name] for name in ("case", "system", "seconds", "latency")},
        "live": median(sample["live"] for sample in counts) if counts else 0,
        "most_mb": max(total(sample) for sample in run["samples"]) / MB,
        "room": room(run),
        "hot": last["hot"] / last["updated"] if last["updated"] else None,
        "lag": max((sample["lag"] for sample in counts), default=0),
    }


def assert_smoke(runs):
    """Asserts conditions that hold for any run, however short."""
    for run in runs:
        insist(run["latency"]["set"]["per_second"] > 0 and run["samples"], f"{run['system']}: nothing was set")
        insist(run["samples"][-1]["deleted"] > 0, f"{run['system']}: nothing was swept")
        insist(room(run) > 0, f"{run['system']}: no room was measured")


HEAD = ("case", "system", "s", "sets/s", "set p99", "gets/s", "get p99", "live", "most MB", "of fresh", "HOT", "longest lag")


def render(options, summary, runs, machine):
    return f"""# Expiry under churn

{ground(machine)}; {runs[0]['server']}; load at the start {machine['load_at_start']:.1f}. {options.clients} clients, half gets and half sets at full speed,
stock settings; TTLs and the sweep interval of 10 s times {options.scale}. One run each; behind a p99 its least and largest of {SLICES} equal parts.

{markdown(HEAD, map(cells, summary))}

{" ".join(f"![{name}](case_{name}.png)" for name in dict.fromkeys(row["case"] for row in summary))}"""


def cells(row):
    rates = []
    for name in ("set", "get"):
        seen = row["latency"][name]
        low, high = min(seen["p99_us_of_slices"]) / 1000, max(seen["p99_us_of_slices"]) / 1000
        rates += [f"{seen['per_second']:,.0f}", f"{seen['p99_us'] / 1000:.2f} ({low:.2f}-{high:.2f}) ms"]
    hot = "" if row["hot"] is None else f"{row['hot']:.0%}"
    return (row["case"], row["system"], row["seconds"], *rates, f"{row['live']:,.0f}", f"{row['most_mb']:,.0f}", f"{row['room']:.2f} x",
            hot, f"{row['lag']:.1f} s")  # fmt: skip


def draw(folder, case, runs):
    """Draws the case over time, with one colour for each system. A case without overwrites has no HOT updates, and no
    panel for them."""
    ways = {way.name: way for way in WAYS}
    kinds = [("Table, indexes, TOAST: MB", sizes), ("HOT share of updates, %", hot), ("Longest expired row: s", lag)]
    kinds = [(title, of) for title, of in kinds if any(of(run)[0] for run in runs)]
    figure, axes = plt.subplots(1, len(kinds), figsize=(5 * len(kinds), 4.8), squeeze=False)
    seconds = ", ".join(sorted({f"{run['seconds']:,} s" for run in runs}))
    what = "Dashed: twice a fresh table of what lived in the last two sweep intervals."
    head(figure, case.title, f"One run of {seconds} each. {what}")
    for axis, (title, of) in zip(axes[0], kinds):
        for run in runs:
            way = ways[run["system"]]
            axis.plot(*of(run), color=way.colour, label=way.label, marker="." if of is lag else None)
            if of is sizes:
                rows = [s for s in run["samples"] if "lived" in s]
                bound = [2 * s["lived"] * run["fresh_row"] / MB for s in rows]
                axis.plot([s["t"] for s in rows], bound, color=way.colour, linestyle="--", linewidth=0.8)
        axis.set_title(title, pad=8)
        axis.set_xlabel("seconds")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color=FAINT, linewidth=0.8)
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.87))
    figure.savefig(folder / f"case_{case.name}.png")
    plt.close(figure)


def sizes(run):
    return [s["t"] for s in run["samples"]], [total(s) / MB for s in run["samples"]]


def hot(run):
    found = [(b["t"], 100 * (b["hot"] - a["hot"]) / (b["updated"] - a["updated"]))
             for a, b in zip(run["samples"], run["samples"][5:]) if b["updated"] > a["updated"]]  # fmt: skip
    return [t for t, _ in found], [share for _, share in found]


def lag(run):
    rows = [s for s in run["samples"] if "lag" in s]
    return [s["t"] for s in rows], [s["lag"] for s in rows]
