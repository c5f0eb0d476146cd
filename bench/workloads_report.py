"""Writes the report of the workloads: the questions, the machine, the tables, where pgcache is slower and why, and
figures that others published."""

from . import headline
from .base import ground
from .systems import ALL, LABELS, WORKLOADS
from .tables import COST_HEAD, HEAD, cells, cost_cells, markdown, ordered, spread, tool_pairs


def render(options, summary, by_tool, facts):
    parts = [
        "# Read, mixed and write: Redis, plain tables and pgcache side by side",
        asked(options),
        servers(facts),
        headlines(options, summary, facts),
        "## Results\n\n" + markdown(HEAD, cells(summary)),
        READING,
        CHARTS if options.charts else "",
        COST + markdown(COST_HEAD, cost_cells(summary)),
        losses(summary),
        tools(by_tool, options),
        "## Every tool and thread count\n\n" + markdown(TOOL_HEAD, tool_cells(by_tool)),
        checks(options, facts),
        PUBLISHED.format(published(summary)),
    ]
    return "\n\n".join(part for part in parts if part)


CHARTS = "![Requests per second](throughput.png)\n\n![Latency](latency.png)\n\n![Server CPU for each request](cost.png)"
KEYS = {"uniform": "uniformly", "zipf": "with a zipfian skew of 0.99"}


def asked(options):
    many, times = "s" * (options.clients > 1), "s" * (options.repeats > 1)
    return f"""How many requests a second does each answer, how long does one take, and what does the server spend?

{options.entries:,} entries are preloaded: keys are UUIDs of 36 bytes, values have {options.value_size} bytes. Read: 80 % of the keys
exist, drawn {KEYS[options.keys]}. Mixed: 20 % writes, 80 % reads. Write: 10 % overwrite an entry, the others are new.
{options.clients} client{many} {"over TCP (loopback)" if options.tcp else "on a unix socket"}, one request in flight on each, prepared statements. {options.repeats} interleaved repetition{times} of {options.seconds:g} s a run; in each
repetition every system starts a server of its own, is loaded, checkpointed and warmed up, and is alone while it is
measured. Client threads tried: {" and ".join(map(str, options.threads))}; the best tool and thread count of each system counts.
{"**A quick look, not a measurement**: one short run each." if options.repeats == 1 else ""}"""


def headlines(options, summary, facts):
    table = markdown(headline.HEAD, headline.cells(summary, facts))
    return "\n\n".join(["## In short", headline.about(options), table, "\n".join(headline.conclusions(summary, facts["other_cpu"]["median"]))])


def servers(facts):
    noise = facts["other_cpu"]
    lines = [
        ("machine", f"{ground(facts['machine'])}; load when the run began: {facts['machine']['load_at_start']:.2f}; clients share its cores"),
        ("others", f"took {noise['median']} cores in the median run, {noise['most']} in the worst"),
    ]
    for system in ALL:
        if seen := facts.get(system.name):
            settings = ", ".join(f"{name} = {value or repr('')}" for name, value in seen["settings"].items())
            lines.append((system.label, f"{seen['version']}; {settings}"))
    snapshots = facts.get("redis", {}).get("snapshots")
    note = "" if snapshots is None else f"Snapshots Redis took in its last repetition, the one after the preload among them: {snapshots}."
    return f"## Ground\n\n{markdown(('', ''), lines)}\n\n{STOCK}{note}"


STOCK = """Servers run at their defaults, except for what a label or the table says. Redis writes its snapshots as `save`
says, Postgres its WAL with fsync, so `table, logged` and `pgcache, logged` survive a crash, Redis loses what came since its last snapshot, and
unlogged caches are empty after a crash. """

READING = """`CPU` is the server's, in cores: user and system time of all its processes, those that exited included, over wall time.
`CPU µs` is the same for one request: unlike the rates it hardly depends on what else the machine does, nor on whether
its cores sleep between requests.
`MB` is the proportional set size of all its processes at 70 % of the run: shared memory once. For Postgres the page
cache that holds its files is not in it. `hits` is counted in the timed runs where the driver won the row, else in the
checked pass; `from tier` is the share of these hits that the hot tier answered, by its own counters. Figures whose
ranges overlap are not told apart by this run."""

COST = """## What a million requests cost

CPU seconds of the server for a million requests, and those of the client beside it; memory while they run; WAL that a
million writes leave behind. The first change of a page after a checkpoint is logged whole, so WAL for each write falls as a
run gets longer. Redis writes no log at its defaults: it saves everything from time to time.

"""


def losses(summary):
    found = {(row["workload"], row["system"]): row["tps"] for row in summary}
    lines = []
    for row in ordered(summary):
        name, system = row["workload"], row["system"]
        beside = {"Redis": found.get((name, "redis")), "the plain table": found.get((name, system.replace("pgcache", "table")))}
        said = [f"{row['tps'] / other:.2f} of {who}" for who, other in beside.items() if other and row["tps"] < other]
        if system.startswith(("pgcache", "resp")) and said:
            lines.append(f"- {LABELS[system]}, {name}: {', '.join(said)}")
    return "## What we lose, and why\n\n" + "\n".join(lines) + "\n\n" + REASONS if lines else ""


REASONS = """Against Redis: a request to Postgres passes through a process of its own for each client, a protocol of seven
messages instead of two, a snapshot and a prepared plan, and a write also through a transaction id and a commit; the baseline
`SELECT 1` shows how much of it no extension can save. Redis keeps everything in one process and in memory. A table
cache gives transactions, joins, privileges and, when logged, durability for that. Against the plain table: a
function call, its checks, and the deadline that is compared on every read."""


def tools(by_tool, options):
    pairs = tool_pairs(by_tool)
    if not pairs:
        return ""
    lines = [
        (label, own["tool"], rate(own), rate(ours), f"{ours['tps'] / own['tps']:.2f}", cores(own), cores(ours))
        for label, own, ours in pairs
    ]
    head = ("request", "own tool", "own tool/s", "driver/s", "ratio", "own tool's CPU", "driver's CPU")
    chart = "![Tools](tools.png)" if options.charts else ""
    return "\n\n".join(part for part in (DRIVER, markdown(head, lines), chart, key_cost(by_tool)) if part)


def rate(row):
    return f"{row['tps']:,.0f}"


def cores(row):
    return f"{row['client_cpu']:.2f}"


DRIVER = """## Is the client what is measured?

redis-benchmark cannot mix commands or write old keys and new ones, so there is one client that can, `bench/driver`. It
speaks both protocols with the same loop, the same keys and the same clock, and sends Postgres what libpq sends. Where
it is faster than a server's own tool, that tool was part of what it measured. It is used on both sides, so neither
server is flattered by a leaner client than the other has."""


def key_cost(by_tool):
    found = {}
    for row in by_tool:
        if row["tool"] == "pgbench":
            found[row["workload"]] = max(row["tps"], found.get(row["workload"], 0))
    if not {"baseline", "baseline_nolog", "baseline_key"} <= found.keys():
        return ""
    made, logged = (found[name] / found["baseline"] for name in ("baseline_key", "baseline_nolog"))
    return f"""pgbench draws a number and the server appends it to a constant to make the key (one concatenation); the driver sends
the finished key. `SELECT` of such a key runs at {made:.3f} of `SELECT 1` by pgbench; that cost falls on Postgres alone.
pgbench without its latency log runs at {logged:.3f} of pgbench with it (one transaction in fifty is logged)."""


TOOL_HEAD = ("workload", "system", "tool", "threads", "median/s", "min-max", "p99 ms", "server CPU", "client CPU", "runs")


def tool_cells(by_tool):
    names = list(LABELS)
    order = sorted(by_tool, key=lambda row: (row["workload"], names.index(row["system"]), row["tool"], row["threads"]))
    for row in order:
        p99 = f"{row['p99_ms']:.3f}" if row["p99_ms"] else ""
        who = (row["workload"], LABELS[row["system"]], row["tool"], row["threads"])
        yield (*who, rate(row), spread(row), p99, f"{row['cpu']:.2f}", cores(row), row["runs"])


def checks(options, facts):
    lines = []
    for system in options.systems:
        seen = facts.get(system.name, {})
        if "check" in seen:
            shares = (seen["check"].get(name) for name in ("hit_rate", "new_share", "overwritten_share"))
            shares = ("in the timed runs" if share is None else f"{share:.1%}" for share in shares)
            lines.append((system.label, *shares, f"{seen['disk_mb']:.0f}"))
    head = ("system", "reads that hit", "writes: new", "writes: overwritten", "MB on disk after the preload")
    return f"{CHECKS}\n\n{markdown(head, lines)}"


CHECKS = """## That the work is done

Outside of the timed runs a checked pass runs the same statements and keeps the answers: a hit must carry the value that was
stored, and what the writes left is counted in the table, old keys and new. In the timed runs the driver checks every answer, and after each run
of writes the entries are counted. A run that strays by more than two points stops the whole (a short one: by more than
chance explains)."""

PUBLISHED = """## Beside the published figures

"Redis or Postgres as a cache" (Postgres 17.6, Redis 8.2, defaults, 2 cores, 30 million entries, two minutes a run)
reports for its reads **through a small web server**: Redis 11,258 and Postgres 7,425 requests/s, that is 0.66 of Redis;
Postgres was bound by its two cores, Redis used 1.28; memory 3.8 GiB against 5.0 to 6. Those requests include HTTP and a
web server, ours are straight to the socket: the numbers are no like for like, and only the ratio may be looked at, with
care. {} Its figures for mixed and write are lost."""


def published(summary):
    rates = {row["system"]: row["tps"] for row in summary if row["workload"] == WORKLOADS[0]}
    if not {"redis", "table_unlogged"} <= rates.keys():
        return ""
    redis = rates.pop("redis")
    said = "; ".join(f"{LABELS[name]} {tps:,.0f} ({tps / redis:.2f} of Redis)" for name, tps in rates.items())
    return f"Our reads, straight to the socket: Redis {redis:,.0f}; {said}."
