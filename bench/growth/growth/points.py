"""One point of a curve: a server with the axis at one value, loaded, asked."""

import re
from dataclasses import replace

from rounds import law, measure, plan as plans, servers, systems
from rounds.command import output
from rounds.jobs import Job
from rounds.postgres_server import DATABASE

from . import axes

ROUNDS = ("read", "write")
CACHES_SQL = "SELECT cache_get('key:' || :n, ('c' || :c)::regclass);\n"


def run(axis, values, system_name, options):
    """Yields a row for each value and round; one server serves the whole axis where it can."""
    if axis.name == "clients":
        yield from of_clients(values, system_name, options)
        return
    for value in values:
        yield from (of_caches if axis.name == "caches" else of_rounds)(axis.name, value, system_name, options)


def base(options, *words):
    sizes = [
        "--entries",
        str(options.entries),
        "--seconds",
        str(options.seconds),
        "--threads",
        "1",
        "--out",
        str(options.out),
    ]
    return plans.from_words([*sizes, *map(str, words)])


def plan_at(axis, value, options):
    if axis == "entries":
        return base(options, "--entries", value)
    if axis == "tier":
        return base(options, "--tier", value)
    seconds = min(options.seconds, 1.0) if value >= axes.LARGE else options.seconds
    entries = axes.entries_for_value(value, options.entries)
    return base(
        options,
        "--value-size",
        value,
        "--entries",
        entries,
        "--seconds",
        seconds,
        "--tier",
        8192 if value >= axes.LARGE else 2048,
    )


def of_rounds(axis, value, system_name, options):
    server = servers.of(systems.by_names([system_name])[0], plan_at(axis, value, options))
    try:
        with server:
            server.load()
            yield from asked(server, value)
    finally:
        server.remove()


def of_clients(values, system_name, options):
    most = base(options, "--clients", max(values))
    server = servers.of(systems.by_names([system_name])[0], most)
    try:
        with server:
            server.load()
            for value in values:
                server.plan = replace(most, clients=value)
                yield from asked(server, value)
    finally:
        server.remove()


def asked(server, value):
    for name in ROUNDS:
        row, _, stdout = measure.run(server, Job(name, "client", 1))
        yield {"value": value, "entries": server.plan.entries, **row, "raw": stdout.partition(',"latency"')[0] + "}"}


def of_caches(_axis, value, system_name, options):
    plan = base(options)
    server = servers.of(systems.by_names([system_name])[0], plan)
    try:
        with server:
            each = fill(server, value, plan)
            script = options.out / "caches.sql"
            script.write_text(f"\\set n random(1, {each})\n\\set c random(1, {value})\n{CACHES_SQL}")
            yield {
                "value": value,
                "system": system_name,
                "round": "read",
                "entries": plan.entries,
                **by_pgbench(server, script),
            }
    finally:
        server.remove()


def fill(server, count, plan):
    """The entries, spread evenly; read once each, so that the tier has its copies."""
    storage, each = ("memory" if server.system.name == "pgcache_memory" else "unlogged"), max(1, plan.entries // count)
    server.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
    server.sql("CREATE EXTENSION pgcache")
    server.sql(f"SELECT count(cache_create('c' || c, storage => '{storage}')) FROM generate_series(1, {count}) AS c")
    every = f"generate_series(1, {count}) AS c, generate_series(1, {each}) AS n"
    value = law.value(plan.value_size)
    server.sql(f"SELECT count(cache_set('key:' || n, '{value}', NULL, ('c' || c)::regclass)) FROM {every}")
    server.sql(f"SELECT count(cache_get('key:' || n, ('c' || c)::regclass)) FROM {every}")
    return each


def by_pgbench(server, script):
    """pgbench, because the client knows one cache; a first run warms the sessions' own memory of the caches."""
    plan = server.plan
    words = [server.bin / "pgbench", *server.tool_connection, "-n", "-M", "prepared", "-c", plan.clients, "-f", script]
    output([*words, "-t", 200, DATABASE])
    stdout, seen = measure.watch(server, [*words, "-T", max(1, round(plan.seconds)), DATABASE])
    found = {name: float(re.search(pattern, stdout).group(1)) for name, pattern in PRINTED.items()}
    return {**found, **seen, "raw": stdout}


PRINTED = {"tps": r"tps = ([\d.]+)", "mean_ms": r"latency average = ([\d.]+) ms"}
