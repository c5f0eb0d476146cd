"""Runs the workloads through a small web server, as they were published.

The driver serves `/get?key=` and `/set?key=` over connections to the store, and is also the users of that server, so no
other tool has to be built. Both ends of HTTP are the crate hyper.
"""

from urllib.error import HTTPError
from urllib.request import Request, urlopen

from . import charts, key_distribution as kd, processes
from .base import Journal, drive, ground, insist, named, say
from .servers import Setup, Web, of
from .stats import in_ms, summarise
from .systems import ALL, LABELS, OF_EACH_KIND, WORKLOADS
from .tables import markdown, ordered, runs_said, spread

SIZES = {
    "full": {"entries": 1_000_000, "seconds": 20.0, "repeats": 5, "systems": OF_EACH_KIND},
    "quick": {"entries": 1_000_000, "seconds": 5.0, "repeats": 1, "systems": OF_EACH_KIND},
    "smoke": {"entries": 1000, "seconds": 0.3, "repeats": 1, "systems": "redis,pgcache_memory"},
}
FIELDS = ("tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu_us", "web_cpu_us", "rss_mb")
HEAD = ("workload", "system", "requests/s", "min-max", "of Redis", "mean ms", "p50 ms", "p95 ms", "p99 ms", "store CPU us",
        "web server CPU us", "store MB")  # fmt: skip
WARMUP = 2  # seconds


def add_options(parser):
    parser.add_argument("--entries", type=int, help="preloaded (1000000; the published run had 30000000)")
    parser.add_argument("--users", type=int, default=50, help="each waits for its answer (50)")
    parser.add_argument("--connections", type=int, default=16, help="the web server holds to the store (16)")
    parser.add_argument("--systems", help="comma separated, as in systems.py")
    parser.add_argument("--tcp", action="store_true", help="between web server and store; unix socket otherwise")


def run(options):
    journal = Journal(options.out, ("repetition", "system", "workload"))
    for repetition in range(options.repeats):
        for system in named(ALL, options.systems):
            todo = [name for name in WORKLOADS if not journal.has(repetition, system.name, name)]
            if todo:
                measure_system(system, todo, repetition, options, journal)
    summary = summarise(journal.rows, ("workload", "system"), FIELDS)
    charts.throughput(options.out, "web", "Requests per second through a web server", summary, runs_said(summary, options.seconds))
    journal.report(summary, render(options, summary, journal))


def measure_system(system, workloads, repetition, options, journal):
    setup = Setup(options.out, options.entries, clients=options.connections, tcp=options.tcp)
    with of(system, setup) as store:
        store.load()
        with Web(store, options.connections) as web:
            if options.size == "smoke":
                assert_smoke(web)
            for name in workloads:
                journal.add({"repetition": repetition, "version": store.version(), **measure(web, name, options)})
                row = journal.rows[-1]
                say(f"{system.name:<18}{name:<7}{row['tps']:>9,.0f}/s  p99 {row['p99_ms']:.2f} ms")


def measure(web, name, options):
    """Measures the processes of the store and of the web server during the warm-up and the run. The CPU time covers the
    requests of both."""
    store = web.store
    offset = store.to_driver.get("offset", 0)
    load = {"workload": name, "clients": options.users, "entries": options.entries, "value": kd.value(37), "offset": offset}
    drive("requests", protocol="http", socket=web.socket, seconds=min(WARMUP, options.seconds), **load)
    before = used(web)
    seen = drive("requests", protocol="http", socket=web.socket, seconds=options.seconds, **load)
    cost = ((after - then) / seen["requests"] * 1e6 for after, then in zip(used(web), before))
    reads = seen["hits"] + seen["misses"]
    right = reads < 1000 or abs(seen["hits"] / reads - kd.HIT_RATE) <= 0.03
    insist(right, f"{store.system.name}, {name}: {seen['hits']} of {reads} reads hit, not {kd.HIT_RATE:.0%}")
    memory = {"rss_mb": processes.pss_mb(store.pid)}
    return {"workload": name, "system": store.system.name, "tps": seen["tps"], **in_ms(seen), **dict(zip(("cpu_us", "web_cpu_us"), cost)), **memory}


def used(web):
    return processes.cpu_seconds(web.store.pid), processes.cpu_seconds(web.pid)


def ask(url, body=None):
    try:
        with urlopen(Request(url, data=body), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, ""


def assert_smoke(web):
    """Checks with an independent client that the store answers through the server with the value that was set."""
    offset, name = web.store.to_driver.get("offset", 0), web.store.system.name

    def key(number):
        return f"{kd.PREFIX}{offset + number:012}"

    def get(number):
        return ask(f"http://{web.socket}/get?key={key(number)}")

    insist(get(1) == (200, kd.value(37)), f"{name}: a stored key answered {get(1)}")
    insist(get(0)[0] == 404, f"{name}: an absent key answered {get(0)}")
    for value in ("set through the server", kd.value(37)):
        status, _ = ask(f"http://{web.socket}/set?key={key(1)}", value.encode())
        insist(status == 204, f"{name}: a set answered {status}")
        insist(get(1) == (200, value), f"{name}: what was set answered {get(1)}")
    insist(ask(f"http://{web.socket}/other")[0] == 400, f"{name}: a path that is none was answered")


def render(options, summary, journal):
    redis = {row["workload"]: row["tps"] for row in summary if row["system"] == "redis"}
    times = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu_us", "web_cpu_us")
    lines = [
        (row["workload"], LABELS[row["system"]], f"{row['tps']:,.0f}", spread(row),
         f"{row['tps'] / redis[row['workload']]:.2f}" if row["workload"] in redis else "",
         *(f"{row[name]:.2f}" for name in times), f"{row['rss_mb']:.0f}")
        for row in ordered(summary)
    ]  # fmt: skip
    versions = ", ".join(dict.fromkeys(row["version"] for row in journal.rows))
    return f"""# The workloads through a web server

A small web server answers `/get` and `/set`, {options.connections} connections to the store by {"TCP" if options.tcp else "unix socket"}; {options.users} users ask it without pause, over
HTTP, each on a connection that it keeps. Server and users are the driver, and HTTP at both ends is the crate hyper.
{options.entries:,} entries, values of 37 bytes; read: 80 % exist; mixed: 20 % writes; write: 10 % overwrite. {runs_said(summary, options.seconds).capitalize()}.
{ground(journal.facts['machine'])}, shared by users, web server and store. {versions}.

{markdown(HEAD, lines)}

![Requests per second](web.png)

CPU is for one request, in microseconds. Published for such a set-up (Postgres 17.6, Redis 8.2, 30 million entries, two minutes a
run): reads, Redis 11,258 and Postgres 7,425 requests/s, 0.66 of Redis. Here users and web server share the cores with
the store: the CPU columns say what each takes, and the rest of the cores is the users'."""
