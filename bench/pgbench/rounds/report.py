"""The Markdown report: what was asked, on what, the tables, what is lost and why, and what others published."""

from . import charts, table
from .systems import ALL, ROUNDS, SYSTEMS

LABELS = {system.name: system.label for system in ALL}


def write(plan, summary, by_tool, facts):
    parts = [
        "# Rounds: Redis, plain tables and pgcache side by side",
        asked(plan),
        ground(facts),
        "## Results\n\n" + table.markdown(table.HEAD, table.cells(summary)),
        READING,
        CHARTS if plan.charts else "",
        cost(plan, summary),
        losses(summary),
        tools(by_tool),
        "## Every tool and thread count\n\n" + table.markdown(TOOL_HEAD, tool_cells(by_tool)),
        checks(plan, facts),
        PUBLISHED.format(published(summary)),
        FILES,
    ]
    (plan.out / "report.md").write_text("\n\n".join(part for part in parts if part) + "\n")


CHARTS = "![Requests per second](throughput.png)\n\n![Latency](latency.png)\n\n![Server CPU for each request](cost.png)"


def asked(plan):
    return f"""How many requests a second does each answer, how long does one take, and what does the server spend?

{plan.entries:,} entries are preloaded: keys are UUIDs of 36 bytes, values have {plan.value_size} bytes. Read: 80 % of the keys
exist, drawn {KEYS[plan.keys]}. Mixed: 20 % writes, 80 % reads. Write: 10 % overwrite an entry, the others are new.
{plan.clients} client{"s" * (plan.clients > 1)} {"over TCP (loopback)" if plan.tcp else "on a unix socket"}, one request in flight on each, prepared statements. {plan.repeats} interleaved repetition{"s" * (plan.repeats > 1)} of {plan.seconds:g} s a run; in each
repetition every system starts a server of its own, is loaded, checkpointed and warmed up, and is alone while it is
measured. Client threads tried: {" and ".join(map(str, plan.threads))}; the best tool and thread count of each system counts.
{"**A quick look, not a measurement**: one short run each." if plan.repeats == 1 else ""}"""


KEYS = {"uniform": "uniformly", "zipf": "with a zipfian skew of 0.99"}


def ground(facts):
    machine = facts["machine"]
    lines = [
        (
            "machine",
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; clients share them with the server",
        ),
        (
            "system",
            f"{machine['system']}, Linux {machine['kernel']}; load when the run began: {machine['load_at_start']:.2f}",
        ),
    ]
    noise = facts["other_cpu"]
    lines.append(("others", f"took {noise['median']} cores in the median run, {noise['most']} in the worst"))
    for system in ALL:
        if seen := facts.get(system.name):
            lines.append((system.label, f"{seen['version']}; {settings(seen)}"))
    snapshots = facts.get("redis", {}).get("snapshots")
    note = "" if snapshots is None else SNAPSHOTS.format(snapshots)
    return "## Ground\n\n" + table.markdown(("", ""), lines) + "\n\n" + STOCK + note


def settings(seen):
    return ", ".join(f"{name} = {value or repr('')}" for name, value in seen["settings"].items())


STOCK = """Servers run at their defaults, except for what a label or the table says. Redis writes its snapshots as `save`
says, Postgres its WAL with fsync, so `table, logged` and `pgcache, logged` survive a crash, Redis loses what came since its last snapshot, and
unlogged caches are empty after a crash. """

SNAPSHOTS = "Snapshots Redis took in its last repetition, the one after the preload among them: {}."

READING = """`CPU` is the server's, in cores: user and system time of all its processes, those that exited included, over wall time.
`MB` is the proportional set size of all its processes at 70 % of the run: shared memory once. For Postgres the page
cache that holds its files is not in it. `hits` is counted in the timed runs where the client won the row, else in the
checked pass; `from tier` is the share of these hits that the hot tier answered, by its own counters. Figures whose
ranges overlap are not told apart by this run."""


def cost(plan, summary):
    lines = [cost_cells(plan, row) for row in summary]
    return f"{COST}\n\n" + table.markdown(COST_HEAD, sorted(lines, key=lambda line: ROUNDS.index(line[0])))


def cost_cells(plan, row):
    per_write = row.get("wal_per_write") if row["round"] == "write" else None
    wal = "" if per_write is None else f"{per_write * 1e6 / 1024**2:.0f}"
    cpu = f"{row['cpu'] / row['tps'] * 1e6:.1f}"
    return (
        row["round"],
        LABELS[row["system"]],
        cpu,
        f"{row['client_cpu'] / row['tps'] * 1e6:.1f}",
        f"{row['rss_mb']:.0f}",
        wal,
        str(plan.clients),
    )


COST = """## What a million requests cost

CPU seconds of the server for a million requests, and those of the client beside it; memory while they run; WAL that a
million writes leave behind. The first change of a page after a checkpoint is logged whole, so WAL for each write falls as a
run gets longer. Redis writes no log at its defaults: it saves everything from time to time."""

COST_HEAD = ("round", "system", "server CPU s", "client CPU s", "memory MB", "WAL MB", "connections held")


def losses(summary):
    found = {(row["round"], row["system"]): row for row in summary}
    lines = []
    for system in SYSTEMS:
        if system.name.startswith("pgcache"):
            lines += [loss(found, name, system.name) for name in ROUNDS]
    lines = [line for line in lines if line]
    return "## What we lose, and why\n\n" + "\n".join(lines) + "\n\n" + REASONS if lines else ""


def loss(found, name, system):
    ours = found.get((name, system))
    plain = found.get((name, system.replace("pgcache", "table")))
    redis = found.get((name, "redis"))
    rivals = [("Redis", redis), ("the plain table", plain)]
    said = [f"{ours['tps'] / row['tps']:.2f} of {who}" for who, row in rivals if behind(ours, row)]
    return f"- {LABELS[system]}, {name}: " + ", ".join(said) if said else ""


def behind(ours, row):
    return ours and row and ours["tps"] < row["tps"]


REASONS = """Against Redis: a request to Postgres passes through a process of its own for each client, a protocol of seven
messages instead of two, a snapshot and a prepared plan, and a write also through a transaction id and a commit; the floor
`SELECT 1` below shows how much of it no extension can save. Redis keeps everything in one process and in memory. A table
cache gives transactions, joins, privileges and, when logged, durability for that. Against the plain table: a
function call, its checks, and the deadline that is compared on every read."""


def tools(by_tool):
    if not charts.pairs(by_tool):
        return ""
    lines = [
        (label, own["tool"], rate(own), rate(ours), f"{ours['tps'] / own['tps']:.2f}", cores(own), cores(ours))
        for label, own, ours in charts.pairs(by_tool)
    ]
    head = ("request", "own tool", "own tool/s", "client/s", "ratio", "own tool's CPU", "client's CPU")
    return "\n\n".join([CLIENT, table.markdown(head, lines), "![Tools](tools.png)", key_cost(by_tool)])


def rate(row):
    return f"{row['tps']:,.0f}"


def cores(row):
    return f"{row['client_cpu']:.2f}"


CLIENT = """## Is the client what is measured?

redis-benchmark cannot mix commands or write old keys and new ones, so there is one client that can, `bench/driver`. It
speaks both protocols with the same loop, the same keys and the same clock, and sends Postgres what libpq sends. Where
it is faster than a server's own tool, that tool was part of what it measured. It is used on both sides, so neither
server is flattered by a leaner client than the other has."""


def key_cost(by_tool):
    floors = {}
    for row in by_tool:
        if row["tool"] == "pgbench":
            floors[row["round"]] = max(row["tps"], floors.get(row["round"], 0))
    if not {"floor", "floor_nolog", "floor_key"} <= floors.keys():
        return ""
    made, logged = (floors[a] / floors["floor"] for a in ("floor_key", "floor_nolog"))
    return KEY_COST.format(rate_of=f"{made:.3f}", log=f"{logged:.3f}")


KEY_COST = """pgbench draws a number and the server appends it to a constant to make the key (one concatenation); the client sends
the finished key. `SELECT` of such a key runs at {rate_of} of `SELECT 1` by pgbench; that cost falls on Postgres alone.
pgbench without its latency log runs at {log} of pgbench with it (one transaction in fifty is logged)."""

TOOL_HEAD = ("round", "system", "tool", "threads", "median/s", "min-max", "p99 ms", "server CPU", "client CPU", "runs")


def tool_cells(by_tool):
    names = list(LABELS)
    order = sorted(by_tool, key=lambda row: (row["round"], names.index(row["system"]), row["tool"], row["threads"]))
    return [
        (
            row["round"],
            LABELS[row["system"]],
            row["tool"],
            str(row["threads"]),
            rate(row),
            table.spread(row),
            f"{row['p99_ms']:.3f}" if row["p99_ms"] else "",
            f"{row['cpu']:.2f}",
            cores(row),
            str(row["runs"]),
        )
        for row in order
    ]


def checks(plan, facts):
    checked = [system for system in plan.systems if "check" in facts.get(system.name, {})]
    lines = [check_cells(system.label, facts[system.name]) for system in checked]
    head = ("system", "reads that hit", "writes: new", "writes: overwritten", "MB on disk after the preload")
    return f"{CHECKS}\n\n" + table.markdown(head, lines)


def check_cells(label, seen):
    shares = (seen["check"].get(name) for name in ("hit_rate", "new_share", "overwritten_share"))
    return (label, *map(share, shares), f"{seen['disk_mb']:.0f}")


def share(value):
    return "in the timed runs" if value is None else f"{value:.1%}"


CHECKS = """## That the work is done

Outside of the timed runs a checked pass runs the same scripts and keeps the answers: a hit must carry the value that was
stored, and what the writes left is counted in the table, old keys and new. In the timed runs the client checks every answer, and after each write
run the entries are counted. A run that strays by more than two points stops the whole (a short one: by more than
chance explains)."""

PUBLISHED = """## Beside the published figures

"Redis or Postgres as a cache" (Postgres 17.6, Redis 8.2, defaults, 2 cores, 30 million entries, two minutes a round)
reports for its read round **through a small web server**: Redis 11,258 and Postgres 7,425 requests/s, that is 0.66 of Redis;
Postgres was bound by its two cores, Redis used 1.28; memory 3.8 GiB against 5.0 to 6. Those requests include HTTP and a
web server, ours are straight to the socket: the numbers are no like for like, and only the ratio may be looked at, with
care. {} Its figures for the other rounds are lost."""


def published(summary):
    rates = {row["system"]: row["tps"] for row in summary if row["round"] == "read"}
    if not {"redis", "table_unlogged"} <= rates.keys():
        return ""
    said = [
        f"{LABELS[name]} {rates[name]:,.0f} ({rates[name] / rates['redis']:.2f} of Redis)"
        for name in rates
        if name != "redis"
    ]
    return f"Our read round, straight to the socket: Redis {rates['redis']:,.0f}; " + "; ".join(said) + "."


FILES = """## Files

`summary.json`: one row for each round and system. `by_tool.json`: every tool and thread count, floors too. `runs.jsonl`: every
timed run. `facts.json`: machine, versions, settings, checks. `raw.tar.gz`: what each tool printed, and its latencies as
lines of `microseconds count`."""
