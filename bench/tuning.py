"""Measures the figures of docs/tuning.md: small questions about a setting, each answered by one table.

Everything runs with default settings, fsync on, unix sockets, and pgbench on the same cores.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from .base import BenchError, Journal, field, ground, insist, named, output, say
from .processes import rate_and_cost
from .servers import DATABASE, TIER, Postgres, Setup
from .stats import middle
from .systems import System
from .tables import markdown
from .tools import number, pgbench_rate

SIZES = {
    "full": {"seconds": 6, "repeats": 1, "entries": 1_000_000, "some": 100_000, "tiers": (16, 32, 64, 128), "crowds": (1, 2, 8, 32, 100)},
    "quick": {"seconds": 3, "repeats": 1, "entries": 500_000, "some": 100_000, "tiers": (16, 32, 64, 128), "crowds": (1, 2, 8, 32, 100)},
    "smoke": {"seconds": 1, "repeats": 1, "entries": 20_000, "some": 2000, "tiers": (16,), "crowds": (1, 8),
              "parts": "transaction_ids,batched_gets,sweeps,connections"},
}  # fmt: skip
VALUE = "'value of thirty-seven bytes, all told!'"
HELPERS = (
    "CREATE EXTENSION pgcache",
    # Returns the milliseconds that a query takes.
    """CREATE FUNCTION took(query text) RETURNS numeric LANGUAGE plpgsql AS $$ DECLARE began timestamptz := clock_timestamp();
    BEGIN EXECUTE query; RETURN round(extract(epoch FROM clock_timestamp() - began) * 1000, 3); END $$""",
    # Returns a value that does not compress.
    """CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS
    $$ SELECT left(string_agg(md5(random()::text), ''), bytes) FROM generate_series(0, bytes / 32) $$""",
)
PREPARED, EXTENDED = ("-M", "prepared", "-j", 2), ("-M", "extended", "-j", 2)


def add_options(parser):
    parser.add_argument("--parts", help="of " + ", ".join(part.name for part in PARTS))
    parser.set_defaults(entries=None, some=None, tiers=None, crowds=None)


def run(options):
    options.seconds = round(options.seconds)
    journal = Journal(options.out, ("part",))
    todo = [part for part in named(PARTS, options.parts) if not journal.has(part.name)]
    with server_with(options) as server:
        journal.facts["version"] = server.version()
        for part in todo:
            title, head, rows = part.of(server, options)
            journal.add({"part": part.name, "title": title, "head": head, "rows": [list(map(str, row)) for row in rows]})
            say(part.name)
    tables = (f"## {row['title']}\n\n{markdown(row['head'], row['rows'])}" for row in journal.rows)
    load = journal.facts["machine"]["load_at_start"]
    about = f"{journal.facts['version']}; {ground(journal.facts['machine'])}; load when the run began: {load:.2f}."
    about += f" Clients share the machine; unix socket; one run of {options.seconds} s each."
    journal.report(journal.rows, "\n\n".join(["# Figures for tuning", about, *tables]))


def server_with(options, *conf):
    """Starts a server with default settings, and a tier of the default size unless a line says otherwise."""
    return Server(Setup(options.out, clients=130, conf=(TIER, *conf)), System("bench", "", ""))


class Server(Postgres):
    def __enter__(self):
        super().__enter__()
        self.sql(*HELPERS)
        return self

    def rows(self, *statements):
        """Returns the rows of the last statement that has any."""
        return [line.split("|") for line in self.sql(*statements).splitlines()]

    def alter(self, *settings):
        """Applies `SET name = value` or `RESET name`, and waits a second for the workers to reload."""
        self.sql(*(f"ALTER SYSTEM {setting}" for setting in settings), "SELECT pg_reload_conf()")
        time.sleep(1)

    def megabytes(self, name):
        return self.sql(f"SELECT round(pg_total_relation_size('{name}') / 1e6, 1)")


def rate(server, options, script, *words, seconds=None, **settings):
    """Returns the transactions a second, as a whole number; `settings` are those of the sessions."""
    given = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return int(pgbench_rate(server, script, seconds or options.seconds, *words, env={**os.environ, "PGOPTIONS": given.replace("__", ".")}))


def entry_size(_server, options):
    """Measures the bytes that an entry takes besides its key and value, with the default index and with an index laid
    out for such entries."""
    rows = []
    for size in (8, 37, 100, 512, 1000, 4000):
        costs = []
        for conf in ((), (f"pgcache.hot_entry_size = {36 + size}",)):
            server = server_with(options, *conf)
            server.name += "-index"
            with server:
                costs.append(fill(server, options, size)[1] - 36 - size)
        rows.append((size, *costs))
    head = ("bytes of a value", "stock", "hot_entry_size = key and value")
    return "Bytes of the tier for an entry beside a key of 36 bytes and the value, in a tier of 64 MB", head, rows


def drawn(options, statement):
    return f"\\set n random(1, {options.some})\n{statement};\n"


def fill(server, options, size):
    """Sets half as many entries again as fit. Returns the number of entries that stay, and the bytes of the tier for
    each."""
    many = options.some if options.size == "smoke" else 64 * 1048576 * 3 // 2 // (100 + size)
    server.sql("SELECT cache_create('room', storage => 'memory')",
               f"SELECT count(cache_set(lpad(i::text, 36, 'k'), repeat('v', {size}), cache => 'room')) FROM generate_series(1, {many}) AS i")  # fmt: skip
    counted = "SELECT hot_entries, (SELECT size FROM pgcache.hot_tier) / hot_entries FROM pgcache.stats WHERE cache = 'room'::regclass"
    [(entries, each)] = server.rows(counted)
    server.sql("SELECT cache_drop('room')")
    return int(entries), int(each)


def room(server, options):
    """Measures how many entries a tier holds."""
    rows = [(size, *fill(server, options, size)) for size in (0, 37, 100, 512, 1000, 4000, 64000)]
    head = ("bytes of a value", "entries", "bytes of the tier for each")
    return "Entries of a memory cache in a tier of 64 MB, keys of 36 bytes", head, rows


MANY = "FROM generate_series(1, 1000) AS i"
CALLS = {
    "SELECT cache_set('k', '1', cache => 't')": 1,
    f"SELECT cache_set(format('k%s', i), '1', cache => 't') {MANY}": 1,
    f"SELECT cache_set_many(array_agg(format('k%s', i)), array_agg(text '1'), cache => 't') {MANY}": 1,
    "SELECT cache_get_touch('k', '1 hour', 't')": 1,
    "SELECT cache_get_touch('k', cache => 't')": 0,
    "SELECT cache_get('k', 't')": 0,
    "SELECT cache_fetch('k', 'SELECT 1', cache => 't')": 0,
    "SELECT cache_delete('absent', 't')": 0,
    "SELECT cache_add('k', '1', cache => 't')": 1,
    "SELECT cache_replace('absent', '1', cache => 't')": 0,
    "SELECT cache_rate_limit('full', 1, '1 hour', 't')": 0,
    "SELECT cache_set('k', '1', cache => 'm')": 0,
    "SELECT cache_incr('n', cache => 'm')": 0,
}
NEXT_ID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


def transaction_ids(server, options):
    """Measures how many transaction ids a statement takes, in a separate session. The documentation promises the
    numbers, so a different number is an error."""
    rows = []
    server.sql("SELECT cache_create('t'), cache_create('m', storage => 'memory')")
    server.alter("SET pgcache.expire_interval = 0", "SET autovacuum = off")
    server.sql("SELECT cache_set('k', '1', cache => 't'), cache_rate_limit('full', 1, '1 hour', 't')")
    for call, wanted in CALLS.items():
        before = server.number(NEXT_ID)
        server.sql(f"SELECT count(*) FROM ({call}) AS calls")
        taken = server.number(NEXT_ID) - before
        insist(taken == wanted, f"the number of transaction ids of {call} is {taken} and not {wanted}")
        rows.append((f"`{call}`", taken))
    server.sql("SELECT cache_drop('t'), cache_drop('m')")
    server.alter("RESET pgcache.expire_interval", "RESET autovacuum")
    return "Transaction ids", ("statement", "ids"), rows


TOUCH = "\\set n random(1, 1000)\nSELECT cache_get_touch('s' || :n, '30 minutes', 's');\n"


def touches(server, options):
    """Measures the cost of touches by 1,000 sessions if each writes, and if it writes once a tenth of the ttl has
    passed."""
    rows, each = [], options.some // 8
    for storage in ("unlogged", "logged"):
        for share in (0, 0.1):
            server.sql(f"SELECT cache_create('s', storage => '{storage}')", f"SELECT cache_tune('s', touch_after => {share})")
            server.sql(f"SELECT count(cache_set('s' || i, {VALUE}, '30 minutes', 's')) FROM generate_series(1, 1000) AS i", "CHECKPOINT")
            before = server.counters()
            rate = pgbench_touches(server, each)
            grown = {name: value - before[name] for name, value in server.counters().items()}
            rows.append((storage, share, grown["xids"], grown["wal_bytes"], int(rate)))
            server.sql("SELECT cache_drop('s')")
    return f"{8 * each:,} touches of 1,000 sessions by 8 clients", ("storage", "touch_after", "transaction ids", "bytes of WAL", "touches/s"), rows


def pgbench_touches(server, each):
    words = [server.bin / "pgbench", "-n", "-t", each, *server.connection, *PREPARED, "-c", 8, "-f", "-", DATABASE]
    return number(r"tps = ([\d.]+)", output(words, input=TOUCH))


def batches(server, options):
    """Measures what a batch saves, and what the flush at each commit costs: 8 clients, random keys, one transaction a
    statement."""
    rows = []
    lazy = {"synchronous_commit": "off"}
    for storage, label, more in (("unlogged", "unlogged", {}), ("logged", "logged", {}), ("logged", "logged, synchronous_commit = off", lazy), ("memory", "memory", {})):
        server.sql(f"SELECT cache_create('b', storage => '{storage}')")
        sets = [rate(server, options, drawn(options, f"SELECT cache_set('k' || :n, {VALUE}, cache => 'b')"), *PREPARED, "-c", 8, **more)]
        for size in (10, 100):
            many = f"SELECT cache_set_many(array_agg('k' || (i * 7919 + :n) % {options.some}), array_agg(text {VALUE}), cache => 'b') FROM generate_series(1, {size}) AS i"
            sets.append(rate(server, options, drawn(options, many), *PREPARED, "-c", 8, **more) * size)
        rows.append((label, *sets))
        server.sql("SELECT cache_drop('b')")
    return "Entries set in a second, by entries in one cache_set_many", ("storage", "cache_set", "10", "100"), rows


def batched_gets(server, options):
    """Measures what a batch of gets saves. The arrays are prepared in a table, so that creating them takes no time."""
    some, rows = options.some, []
    for size in (10, 100):
        server.sql(f"CREATE UNLOGGED TABLE keys_{size} AS SELECT n, array_agg('k' || (n * {size} + i) * 7919 % {some}) AS keys "
                   f"FROM generate_series(0, {some // size - 1}) AS n, generate_series(0, {size - 1}) AS i GROUP BY n",
                   f"ALTER TABLE keys_{size} ADD PRIMARY KEY (n)")  # fmt: skip
        server.sql(f"VACUUM ANALYZE keys_{size}")
    off = {"pgcache__hot_tier": "off"}
    for storage, label, more in (("unlogged", "the hot tier", {}), ("unlogged", "an unlogged table", off), ("memory", "a memory cache", {})):
        server.sql(f"SELECT cache_create('b', storage => '{storage}')")
        server.sql(f"SELECT count(cache_set('k' || i, {VALUE}, cache => 'b')) FROM generate_series(0, {some} - 1) AS i")
        server.sql(f"SELECT count(cache_get('k' || i, 'b')) FROM generate_series(0, {some} - 1) AS i")
        gets = [rate(server, options, f"\\set n random(0, {some} - 1)\nSELECT cache_get('k' || :n, 'b');\n", *PREPARED, "-c", 8, **more)]
        for size in (10, 100):
            script = f"\\set n random(0, {some // size - 1})\nSELECT count(value) FROM keys_{size}, cache_get_many(keys, 'b') WHERE n = :n;\n"
            gets.append(rate(server, options, script, *PREPARED, "-c", 8, **more) * size)
        rows.append((label, *gets))
        server.sql("SELECT cache_drop('b')")
    server.sql("DROP TABLE keys_10, keys_100")
    return "Entries read in a second, by keys in one cache_get_many", ("read from", "cache_get", "10", "100"), rows


def fillfactor(server, options):
    """Overwrites at full speed, with the worker: measures whether updates stay HOT and the table stays small."""
    rows, seconds = [], options.seconds * 3
    for factor in (70, 85, 100):
        server.sql("SELECT cache_create('f')", f"ALTER TABLE f SET (fillfactor = {factor})",
                   f"INSERT INTO f SELECT 'k' || i, {VALUE} FROM generate_series(1, {options.some}) AS i")  # fmt: skip
        server.sql("VACUUM f")
        before = server.megabytes("f")
        sets = rate(server, options, drawn(options, f"SELECT cache_set('k' || :n, {VALUE}, cache => 'f')"), *PREPARED, "-c", 8, seconds=seconds)
        time.sleep(1)
        hot = server.sql("SELECT round(100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1), 1) || ' %' FROM pg_stat_user_tables WHERE relname = 'f'")
        rows.append((factor, sets, hot, before, server.megabytes("f")))
        server.sql("SELECT cache_drop('f')")
    head = ("fillfactor", "sets/s", "HOT updates", "MB when loaded", "MB in the end")
    return f"{options.some} entries overwritten by 8 clients for {seconds} s", head, rows


def autovacuum(server, options):
    """Measures the table without the worker, with autovacuum alone, which checks each second here. A tenth of the
    entries expires between two checks."""
    rows, seconds, some = [], options.seconds * 5, options.some
    server.alter("SET autovacuum_naptime = 1", "SET pgcache.expire_interval = 0")
    server.sql("CREATE TABLE noises AS SELECT n, noise(8000) AS long, noise(100) AS short FROM generate_series(1, 20) AS n")
    for factor in (0.2, 0.02, 0.005):
        sizes = []
        for kind, values in (("long", some // 20), ("short", some)):
            scale = f"autovacuum_vacuum_scale_factor = {factor}"
            server.sql("SELECT cache_create('d')", f"ALTER TABLE d SET ({scale}, toast.{scale})")
            # An index on the deadline prevents HOT updates: each version of a short row is left to VACUUM.
            server.sql("CREATE INDEX ON d (expires_at)" if kind == "short" else "SELECT 1")
            server.sql(f"INSERT INTO d SELECT 'k' || i, {kind}, now() + interval '1 hour' FROM generate_series(1, {values}) AS i JOIN noises ON n = 1 + i % 20")
            server.sql("VACUUM d")
            sizes.append(server.megabytes("d"))
            script = f"\\set n random(1, {values})\n\\set v random(1, 20)\nSELECT cache_set('k' || :n, (SELECT {kind} FROM noises WHERE n = :v), '1 hour', 'd');\n"
            rate(server, options, script, *PREPARED, "-c", 4, "-R", values // 10, seconds=seconds)
            sizes.append(server.megabytes("d"))
            server.sql("SELECT cache_drop('d')")
        rows.append((factor, *sizes))
    server.sql("DROP TABLE noises")
    server.alter("RESET autovacuum_naptime", "RESET pgcache.expire_interval")
    head = ("autovacuum_vacuum_scale_factor", f"{some // 20} values of 8 kB: MB when loaded", "in the end",
            f"{some} of 100 B, the deadline indexed: MB when loaded", "in the end")  # fmt: skip
    return f"Autovacuum alone for {seconds} s, looking each second; a tenth of the entries is overwritten in each", head, rows


def sweeps(server, options):
    """Measures the cost of a sweep of the whole table."""
    sweep = "SELECT took('SELECT cache_expire(''s'', 10000000)')"
    server.alter("SET pgcache.expire_interval = 0")
    server.sql("SELECT cache_create('s')", f"INSERT INTO s SELECT 'k' || i, {VALUE} FROM generate_series(1, {options.entries}) AS i")
    server.sql("VACUUM s")
    rows = [(0, server.sql(sweep))]
    server.sql("UPDATE s SET expires_at = now() WHERE abs(hashtext(key)) % 10 = 0")
    rows.append((f"about {options.entries // 10}, all over the table", server.sql(sweep)))
    server.sql("SELECT cache_drop('s')")
    server.alter("RESET pgcache.expire_interval")
    return f"A sweep of {options.entries} entries by cache_expire", ("expired", "ms"), rows


def long_values(server, options):
    """Measures a get within a query, from the tier and from the table, when all values are read for the second
    time."""
    rows = []
    for size in (100, 1000, 10000, 100000, 1000000):
        many = min(5000, 20_000_000 // size)
        server.sql("SELECT cache_create('v')", f"CREATE TABLE keys AS SELECT 'k' || i AS k FROM generate_series(1, {many}) AS i")
        server.sql(f"SELECT count(cache_set(k, noise({size}), cache => 'v')) FROM keys")
        gets = [server.rows(f"SET pgcache.hot_tier = {tier}", "SELECT count(length(cache_get(k, 'v'))) FROM keys",
                            f"SELECT round(took('SELECT count(length(cache_get(k, ''v''))) FROM keys') * 1000 / {many}, 1)")[-1][0]
                for tier in ("on", "off")]  # fmt: skip
        rows.append((size, *gets))
        server.sql("SELECT cache_drop('v')", "DROP TABLE keys")
    return "Microseconds for a get inside of a query", ("bytes of a value", "from the tier", "from the table"), rows


class Pooler:
    """pgbouncer in front of a server, with eight sessions. It runs as a daemon, identified by its pid file alone."""

    def __init__(self, server):
        self.server, self.folder = server, server.folder / "pool"

    def __enter__(self):
        port, host = self.server.env["PGPORT"], self.server.folder
        self.folder.mkdir()
        lines = ["[databases]", f"* = host={host} port={port} user=postgres", "[pgbouncer]", "listen_addr =", "listen_port = 6432",
                 f"unix_socket_dir = {self.folder}", f"logfile = {self.folder}/log", f"pidfile = {self.folder}/pid", "auth_type = any",
                 "pool_mode = transaction", "default_pool_size = 8", "max_client_conn = 200", "ignore_startup_parameters = options"]  # fmt: skip
        (self.folder / "ini").write_text("\n".join(lines) + "\n")
        owner = host.stat()
        for path in (self.folder, self.folder / "ini"):
            os.chown(path, owner.st_uid, owner.st_gid)
        program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
        who = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
        subprocess.run([program, "-q", "-d", self.folder / "ini"], check=True, **who)
        for _ in range(600):
            if (self.folder / "pid").exists() and (self.folder / ".s.PGSQL.6432").exists():
                return self
            time.sleep(0.1)
        raise BenchError("pgbouncer did not start")

    def __exit__(self, *_):
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)
        shutil.rmtree(self.folder)

    @property
    def bin(self):
        return self.server.bin

    @property
    def connection(self):
        return ["-h", self.folder, "-p", 6432, "-U", "postgres"]


def connections(server, options):
    """Measures hot gets by so many clients, directly and through a pool of eight sessions."""
    rows, some = [], options.some
    server.sql("SELECT cache_create('g')", f"INSERT INTO g SELECT 'k' || i, {VALUE} FROM generate_series(1, {some}) AS i")
    server.sql(f"SELECT count(cache_get('k' || i, 'g')) FROM generate_series(1, {some}) AS i")
    get = drawn(options, "SELECT cache_get('k' || :n, 'g')")
    with Pooler(server) as pooler:
        for clients in options.crowds:
            straight = [rate(server, options, get, *mode, "-c", clients) for mode in (PREPARED, EXTENDED)]
            rows.append((clients, *straight, rate(pooler, options, get, *EXTENDED, "-c", clients)))
    server.sql("SELECT cache_drop('g')")
    head = ("clients", "prepared", "extended, unnamed", "the same through pgbouncer, 8 sessions")
    return "Hot gets in a second, by clients", head, rows


def size_of_the_tier(_server, options):
    """Measures hit rates with Zipfian keys, of which a few receive most requests. Every key is read once, and a warm-up
    run is not counted."""
    rows, entries = [], options.entries
    get = f"\\set n random_zipfian(1, {entries}, 1.07)\nSELECT cache_get('k' || (:n * bigint '7919' % {entries}), 'z');\n"
    for size in options.tiers:
        server = server_with(options, f"pgcache.hot_size = '{size}MB'")
        server.name += "-tier"
        with server:
            server.sql("SELECT cache_create('z')", f"INSERT INTO z SELECT 'k' || i, {VALUE} FROM generate_series(0, {entries} - 1) AS i")
            server.sql("VACUUM z")
            server.sql(f"SELECT count(cache_get('k' || i, 'z')) FROM generate_series(0, {entries} - 1) AS i")
            rate(server, options, get, *PREPARED, "-c", 8)
            server.sql("SELECT pgcache.reset_stats()")
            tps = rate(server, options, get, *PREPARED, "-c", 8)
            rows += [(size, *row, tps) for row in server.rows("SELECT hot_entries, round(100.0 * hot_hits / (hot_hits + table_hits), 1) || ' %' "
                                                              "FROM pgcache.stats WHERE cache = 'z'::regclass")]  # fmt: skip
    head = ("hot_size, MB", "entries in the tier", "gets from the tier", "gets/s")
    return f"{entries} entries of 37 bytes in an unlogged cache, zipfian gets (1.07)", head, rows


HUGE_TIER_MB, HUGE_CLIENTS = 1024, 50


def huge_pages(_server, options):
    """Measures a large tier with and without huge pages, in turn. The kernel must have enough of them, which root
    reserves: sysctl vm.nr_hugepages."""
    reserved = int(field("/proc/meminfo", "HugePages_Free", ":")) * int(field("/proc/meminfo", "Hugepagesize", ":").split()[0]) // 1024
    tried = ("off", "on") if reserved > HUGE_TIER_MB * 1.25 else ("off",)
    many = options.some if options.size == "smoke" else HUGE_TIER_MB * 1024**2 // 200
    get = f"\\set n random(1, {many})\nSELECT cache_get('k' || :n, 'h');\n"
    found = {setting: [] for setting in tried}
    for _ in range(3):
        for setting in tried:
            server = server_with(options, f"pgcache.hot_size = '{HUGE_TIER_MB}MB'", f"huge_pages = {setting}")
            server.name += "-huge"
            with server:
                server.sql("SELECT cache_create('h', storage => 'memory')",
                           f"SELECT count(cache_set('k' || i, {VALUE}, cache => 'h')) FROM generate_series(1, {many}) AS i")  # fmt: skip
                found[setting].append(rate_and_cost(server.pid, lambda: rate(server, options, get, *PREPARED, "-c", HUGE_CLIENTS)))
    rows = [(setting, *middle([tps for tps, _ in runs]), f"{middle([cpu for _, cpu in runs])[0]:.1f}") for setting, runs in found.items()]
    head = ("huge_pages", "gets/s", "least", "most", "server's processor time for one, µs")
    short = "" if len(tried) == 2 else f"; the kernel has {reserved} MB of huge pages set aside, too few to try them"
    return f"{many} entries in a tier of {HUGE_TIER_MB} MB, {HUGE_CLIENTS} clients that have just connected{short}", head, rows


@dataclass(frozen=True)
class Part:
    name: str
    of: Callable  # takes a server and the options, returns a title, a head and rows


ALL_PARTS = (room, entry_size, transaction_ids, touches, batches, batched_gets, fillfactor, autovacuum, sweeps, long_values, connections, size_of_the_tier, huge_pages)
PARTS = [Part(part.__name__, part) for part in ALL_PARTS]
