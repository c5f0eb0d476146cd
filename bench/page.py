"""Writes REPORT.md, one page from the results of all parts. Adds no figure that a part has not measured."""

import re

from . import promises
from .base import ground, read_json
from .systems import LABELS, WORKLOADS
from .tables import COST_HEAD, HEAD, cells, cost_cells, look, markdown
from .workloads_report import REASONS

RELATIVE = re.compile(r"\]\((?!\w+:|[#/])")  # the start of a link to a file beside the report
BASE, COMPETITORS = "workloads-base", "workloads-competitors"


def write(out, chosen):
    ended = [part for part in chosen if (out / part.name / "ended.json").exists()]
    parts = [
        "# pgcache: the numbers",
        asked(read_json(out / "machine.json")) + noise(out),
        promises.section(out),
        losses(out),
        workloads_section(out),
        variations_section(out, ended),
        competitors_section(out),
        *[own_section(out, part) for part in ended if part.workload not in ("workloads", "tier")],
        trace(out, chosen, ended),
    ]
    (out / "REPORT.md").write_text("\n\n".join(part for part in parts if part) + "\n")
    return out / "REPORT.md"


def load(out, name, file="summary.json"):
    return read_json(out / name / file)


def asked(facts):
    return f"""Is a cache inside Postgres fast enough that nobody needs another server for it? Measured beside Redis, Valkey, memcached and
plain tables, on one machine, in one go, on {facts['day']}: {ground(facts)}. Clients share the cores with the server.
Load when it began: {facts['load_at_start']:.2f}. Ratios within one run mean more than the numbers; figures whose ranges overlap are not told apart."""


def noise(out):
    """Reports an overloaded machine next to the figures, not in a footnote."""
    others = (load(out, BASE, "facts.json") or {}).get("other_cpu")
    if not others:
        return ""
    warning = " **Too much: these figures only show that everything runs.**" if others["median"] > 0.2 else ""
    return f" Other programs took {others['median']} cores in the median timed run, {others['most']} in the worst.{warning}"


def losses(out):
    """Lists every figure below its promise or below Redis, before all others."""
    lines, summary = promises.missed(out), load(out, BASE) or []
    redis = {row["workload"]: row["tps"] for row in summary if row["system"] == "redis"}
    for row in summary:
        beside = redis.get(row["workload"], 0)
        if row["system"].startswith(("pgcache", "resp")) and row["tps"] < beside:
            lines.append(f"- {LABELS[row['system']]}, {row['workload']}: {row['tps'] / beside:.2f} of Redis")
    return "## What we lose, and why\n\n" + "\n".join(lines) + "\n\n" + REASONS if lines else ""


def workloads_section(out):
    summary = load(out, BASE)
    if not summary:
        return ""
    facts = load(out, BASE, "facts.json")
    return f"""## Read, mixed and write

Read: 80 % of the keys exist. Mixed: 20 % writes. Write: 10 % overwrite an entry. {facts["entries"]:,} entries, UUID keys, 37-byte values, {facts["clients"]}
clients on a unix socket, one request in flight on each. {look(summary)} `from tier`: the share of the hits that the hot tier answered.

{markdown(HEAD, cells(summary))}

![Requests per second]({BASE}/throughput.png)

![Latency]({BASE}/latency.png)

A million requests cost, with {facts["clients"]} connections held:

{markdown(COST_HEAD, cost_cells(summary))}

Details: [report]({BASE}/report.md)."""


def variations_section(out, ended):
    """Returns one line for each variation and one column for each system: the rates of reads and writes, divided by
    those of Redis in the same part."""
    parts = [part for part in ended if part.workload == "workloads" and part.name not in (BASE, COMPETITORS)]
    if not parts:
        return ""
    names = ("redis", "table_unlogged", "pgcache_hot", "pgcache_memory")
    lines = [line for part in parts for line in variation_lines(part, load(out, part.name), names)]
    runs = look([row for part in parts for row in load(out, part.name)])
    head = ("changed", "workload", *(LABELS[name] for name in names))
    return f"""## One thing changed at a time

Requests/s, and in brackets over Redis in the same run. {runs}

{markdown(head, lines)}"""


def variation_lines(part, summary, names):
    found = {(row["workload"], row["system"]): row["tps"] for row in summary}
    for name in WORKLOADS:
        rates = [beside(found.get((name, system)), found.get((name, "redis"))) for system in names]
        yield (f"[{part.title}]({part.name}/report.md)", name, *rates)


def beside(rate, redis):
    if rate is None:
        return ""
    return f"{rate:,.0f} ({rate / redis:.2f})" if redis else f"{rate:,.0f}"


def competitors_section(out):
    summary, facts = load(out, COMPETITORS), load(out, COMPETITORS, "facts.json")
    if not summary:
        return ""
    found = {(row["workload"], row["system"]): f"{row['tps']:,.0f}" for row in summary}
    lines = [
        (LABELS[name], facts[name]["version"], *(found.get((workload, name), "") for workload in WORKLOADS))
        for name in LABELS
        if ("read", name) in found
    ]
    return f"""## Newer competitors, and each at its best setting

Everything not named is at its default. I/O threads are documented for four cores and more. {look(summary)}

{markdown(("system", "version", *WORKLOADS), lines)}"""


def own_section(out, part):
    """Returns a part's own report, with its headings one level lower and the paths of its pictures adjusted."""
    report = out / part.name / "report.md"
    if not report.exists():
        return ""
    lines = RELATIVE.sub(f"]({part.name}/", report.read_text()).splitlines()
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)


def trace(out, chosen, ended):
    lines = [(f"[{part.name}]({part.name}/)", *ran(out, part)) for part in ended]
    missing = [part.name for part in chosen if part not in ended]
    left = f"\n\nNot run here: {', '.join(missing)}." if missing else ""
    return f"""## Where each figure comes from

Each folder has its report and summary; every single run, the logs and what the tools printed lie beside them, or in `raw.tar.xz`.

{markdown(("part", "command", "seconds"), lines)}{left}"""


def ran(out, part):
    mark = load(out, part.name, "ended.json")
    return f"`{mark['command']}`", mark["seconds"]
