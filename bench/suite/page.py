"""REPORT.md: one page from the folders of the parts. It computes nothing that a part has not measured."""

import json
import re

from rounds import table
from rounds.systems import ALL, ROUNDS

from . import promises

LABELS = {system.name: system.label for system in ALL}
RELATIVE = re.compile(r"\]\((?!\w+:|[#/])")  # the start of a link to a file beside the report
QUICK_LOOK = 5  # fewer repetitions are a look


def write(out, chosen):
    facts = json.loads((out / "machine.json").read_text())
    ended = [part for part in chosen if (out / part.name / "seconds").exists()]
    parts = [
        "# pgcache: the numbers",
        asked(facts) + noise(out),
        promises.section(out),
        losses(out, ended),
        rounds_section(out, ended),
        variations_section(out, ended),
        rivals_section(out, ended),
        *[own_section(out, part) for part in ended if part.folder not in ("pgbench", "tier")],
        trace(out, chosen, ended),
    ]
    (out / "REPORT.md").write_text("\n\n".join(part for part in parts if part) + "\n")
    return out / "REPORT.md"


def load(out, name, file="summary.json"):
    path = out / name / file
    return json.loads(path.read_text()) if path.exists() else None


def asked(facts):
    return f"""Is a cache inside Postgres fast enough that nobody needs another server for it? Measured beside Redis, Valkey, memcached and
plain tables, on one machine, in one go, on {facts['day']}: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB;
{facts['system']}, Linux {facts['kernel']}. Clients share the cores with the server. Load when it began: {facts['load_at_start']:.2f}.
Ratios within one run mean more than the numbers; figures whose ranges overlap are not told apart."""


def noise(out):
    """An overloaded machine is said where the figures are read, not in a footnote."""
    others = (load(out, "rounds-base", "facts.json") or {}).get("other_cpu")
    if not others:
        return ""
    warning = " **Too much: these figures only show that everything runs.**" if others["median"] > 0.2 else ""
    return f" Other programs took {others['median']} cores in the median timed run, {others['most']} in the worst.{warning}"


def losses(out, ended):
    """Said first, not last: everything that is below what was promised or below Redis."""
    lines = promises.missed(out)
    summary = load(out, "rounds-base") or []
    for row in summary:
        redis = next((r for r in summary if (r["round"], r["system"]) == (row["round"], "redis")), None)
        if redis and row["system"].startswith("pgcache") and row["tps"] < redis["tps"]:
            lines.append(f"- {LABELS[row['system']]}, {row['round']} round: {row['tps'] / redis['tps']:.2f} of Redis")
    return "## What we lose, and why\n\n" + "\n".join(lines) + "\n\n" + REASONS if lines else ""


REASONS = """Each Postgres client is served by a process of its own, over a protocol of seven messages a request where Redis needs two,
through a snapshot and a prepared plan, and a write of a table cache through a transaction id and a commit. `SELECT 1`, the
floor in the detailed reports, is what any function inside Postgres can reach at most. Redis answers from one thread, in
memory, with less CPU for each request. What a table cache gives for it: transactions, joins, privileges, durability when logged, and
no second server."""


def rounds_section(out, ended):
    summary = load(out, "rounds-base")
    if not summary:
        return ""
    note, entries = look(summary), load(out, "rounds-base", "facts.json")["entries"]
    cost = [cost_cells(row) for row in summary]
    return f"""## Rounds

Read: 80 % of the keys exist. Mixed: 20 % writes. Write: 10 % overwrite an entry. {entries:,} entries, UUID keys, 37-byte values, 8
clients on a unix socket, one request in flight on each. {note} `from tier`: the share of the hits that the hot tier answered.

{table.markdown(table.HEAD, table.cells(summary))}

![Requests per second](rounds-base/throughput.png)

![Latency](rounds-base/latency.png)

A million requests cost, with 8 connections held:

{table.markdown(COST_HEAD, sorted(cost, key=lambda line: ROUNDS.index(line[0])))}

Details: [report](rounds-base/report.md)."""


COST_HEAD = ("round", "system", "server CPU s", "memory MB", "WAL MB")


def cost_cells(row):
    wal = row.get("wal_per_write") if row["round"] == "write" else None
    cpu = f"{row['cpu'] / row['tps'] * 1e6:.1f}"
    return (
        row["round"],
        LABELS[row["system"]],
        cpu,
        f"{row['rss_mb']:.0f}",
        "" if wal is None else f"{wal * 1e6 / 1024**2:.0f}",
    )


def look(summary):
    runs = min(row["runs"] for row in summary)
    return f"Medians of {runs} runs." if runs >= QUICK_LOOK else f"**A look: {runs} run{'s' * (runs > 1)} each.**"


def variations_section(out, ended):
    """One line a variation, one column a system: reads and writes over those of Redis in the same part."""
    parts = [
        part for part in ended if part.name.startswith("rounds-") and part.name not in ("rounds-base", "rounds-rivals")
    ]
    if not parts:
        return ""
    names = ("redis", "table_unlogged", "pgcache_hot", "pgcache_memory")
    lines = [line for part in parts for line in variation_lines(out, part, names)]
    head = ("changed", "round", *(LABELS[name] for name in names))
    runs = look([row for part in parts for row in load(out, part.name)])
    return f"""## One thing changed at a time

Requests/s, and in brackets over Redis in the same run. {runs}

{table.markdown(head, lines)}"""


def variation_lines(out, part, names):
    found = {(row["round"], row["system"]): row["tps"] for row in load(out, part.name)}
    for name in ROUNDS:
        redis = found.get((name, "redis"))
        rates = [found.get((name, system)) for system in names]
        yield (f"[{part.title}]({part.name}/report.md)", name, *(beside(rate, redis) for rate in rates))


def beside(rate, redis):
    if rate is None:
        return ""
    return f"{rate:,.0f} ({rate / redis:.2f})" if redis else f"{rate:,.0f}"


def rivals_section(out, ended):
    summary, facts = load(out, "rounds-rivals"), load(out, "rounds-rivals", "facts.json")
    if not summary:
        return ""
    best = {name: {row["system"]: row["tps"] for row in summary if row["round"] == name} for name in ROUNDS}
    lines = [
        (
            LABELS[name],
            facts[name]["version"],
            *(f"{best[kind][name]:,.0f}" if name in best[kind] else "" for kind in ROUNDS),
        )
        for name in LABELS
        if name in best["read"]
    ]
    return f"""## Newer rivals, and each at its best setting

Everything not named is at its default. I/O threads are documented for four cores and more. {look(summary)}

{table.markdown(("system", "version", "read", "mixed", "write"), lines)}"""


def own_section(out, part):
    """A part's own report, its headings one level down and its pictures found from here."""
    report = out / part.name / "report.md"
    if not report.exists():
        return ""
    lines = RELATIVE.sub(f"]({part.name}/", report.read_text()).splitlines()
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)


def trace(out, chosen, ended):
    lines = [
        (f"[{part.name}]({part.name}/)", f"`bench/{part.folder}/run.sh {part.options}`", seconds(out, part))
        for part in ended
    ]
    missing = [part.name for part in chosen if part not in ended]
    left = f"\n\nNot run here: {', '.join(missing)}." if missing else ""
    return f"""## Where each figure comes from

Each folder has the log of its commands, every single run (`runs.jsonl`, `tier.json`) and what the tools printed (`raw.*.gz`).

{table.markdown(("part", "command", "seconds"), lines)}{left}"""


def seconds(out, part):
    return (out / part.name / "seconds").read_text().strip()
