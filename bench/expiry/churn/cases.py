"""The loads and the four systems: a new one is one entry here."""

from dataclasses import dataclass

TABLE = 'CREATE UNLOGGED TABLE bench (key text COLLATE "C" PRIMARY KEY, value text, expires_at timestamptz)'
CACHE = "CREATE EXTENSION pgcache; SELECT cache_create('bench')"
UPSERT = (
    "INSERT INTO bench (key, value, expires_at) VALUES ({key}, {value}, clock_timestamp() + {ttl}) ON CONFLICT (key) "
    "DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"
)
PRELOAD = "shared_preload_libraries = 'pgcache'"


@dataclass(frozen=True)
class System:
    name: str
    label: str
    colour: str
    create: str
    set: str
    get: str
    settings: tuple = ()
    delete_by_cron: bool = False


SET, GET = "SELECT cache_set({key}, {value}, {ttl}, 'bench')", "SELECT cache_get({key}, 'bench')"
SELECT = "SELECT value FROM bench WHERE key = {key} AND (expires_at IS NULL OR expires_at > clock_timestamp())"

SYSTEMS = (
    System("worker", "pgcache, worker on", "#1f9d8b", CACHE, SET, GET, (PRELOAD, "pgcache.expire_interval = '{ms}ms'")),
    System("off", "pgcache, worker off", "#2f80c3", CACHE, SET, GET, (PRELOAD, "pgcache.expire_interval = 0")),
    System(
        "btree",
        "table, btree on the deadline, DELETE by cron",
        "#c8502d",
        TABLE + "; CREATE INDEX ON bench (expires_at)",
        UPSERT,
        SELECT,
        delete_by_cron=True,
    ),
    System("table", "table, DELETE by cron", "#5f6b7a", TABLE, UPSERT, SELECT, delete_by_cron=True),
)


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    keys: int
    draw: str  # pgbench's meta commands that set :i for a set
    draw_get: str  # and for a get
    key: str
    value: str
    fresh_key: str  # the same for a row number n
    fresh_value: str
    fresh_rows: int
    ttl: tuple  # seconds, from and to
    sampling: float  # of the latencies
    prepare: str = ""


SHORT, LONG = "repeat('x', 100)", "(SELECT value FROM long_values WHERE n = :j)"
LONG_VALUES = (
    "CREATE TABLE long_values AS SELECT n, (SELECT string_agg(md5(n || '-' || m), '') "
    "FROM generate_series(1, {md5s}) AS m) AS value FROM generate_series(1, 20) AS n"
)

ANY_KEY = "\\set i random(1, {keys})"
# A client counts its keys in :n, which outlives its transactions, and reads one of its last 10,000.
NEXT_KEY = "\\set n :n + 1\n\\set i hash(:n * 1000 + :client_id)"
LATE_KEY = "\\set m random(greatest(1, :n - 9999), greatest(1, :n))\n\\set i hash(:m * 1000 + :client_id)"
KEY, FRESH_KEY = "'key:' || :i", "'key:' || f.n"
ANY_VALUE, FRESH_LONG = "\n\\set j random(1, 20)", "(SELECT value FROM long_values AS l WHERE l.n = 1 + f.n % 20)"

CASES = (
    Case("a", "a: 1 million keys overwritten at random, TTL 30 to 300 s", 1_000_000, ANY_KEY, ANY_KEY, KEY, SHORT,
         "'key:' || f.n * 10", SHORT, 100_000, (30, 300), 0.05),
    Case("b", "b: keys written once, TTL 60 s", 0, NEXT_KEY, LATE_KEY, KEY, SHORT,
         "'key:' || hashint8extended(f.n, 0)", SHORT, 100_000, (60, 60), 0.05),
    Case("c", "c: 100 KiB values overwritten, 1,000 keys", 1_000, ANY_KEY + ANY_VALUE, ANY_KEY, KEY, LONG, FRESH_KEY,
         FRESH_LONG, 200, (30, 300), 1, LONG_VALUES.format(md5s=3200)),
    Case("d", "d: 40 kB values overwritten, 300 keys", 300, ANY_KEY + ANY_VALUE, ANY_KEY, KEY, LONG, FRESH_KEY,
         FRESH_LONG, 200, (30, 300), 1, LONG_VALUES.format(md5s=1250)),
)  # fmt: skip


def by_names(known, names):
    found = {entry.name: entry for entry in known}
    return [found[name] for name in names.split(",")]
