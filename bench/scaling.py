"""Measures how get and set of the tier scale with processes, without SQL.

The driver measures. Each repetition takes all lines in turn, and the result is the median over repetitions. The chart
shows processor time, which other load on the machine hardly changes: a flat line means that the operation scales.
"""

import json

from .base import Journal, driver_words, ground, insist, output
from .charts import FAINT, head, plt
from .stats import grouped, known, middle
from .tables import markdown, runs_said

SIZES = {
    "full": {"seconds": 0.7, "repeats": 3},
    "quick": {"seconds": 0.3, "repeats": 1},
    "smoke": {"seconds": 0.01, "repeats": 1},
}
LOCK_OF = {"get": "lock shared", "set": "lock exclusive", "get by 32": "lock shared"}
COLOURS = {"get": "#2a6f97", "set": "#c44536", "get by 32": "#6a994e"}
KEY = ("fits", "keys", "work", "processes")


def add_options(parser):
    """Adds no options; there are 80 lines of --seconds each."""


def run(options):
    journal = Journal(options.out, ("repetition",))
    for repetition in range(options.repeats):
        if not journal.has(repetition):
            lines = output(driver_words("scaling", {"seconds": options.seconds})).splitlines()
            for line in lines:
                journal.add({"repetition": repetition, **json.loads(line)})
    summary = summarise(journal.rows)
    if options.size == "smoke":
        insist(len(summary) == 48 and all(row["ns"] > 0 for row in summary), "a line is missing")
    draw(options, summary)
    journal.report(summary, render(options, summary, journal.facts["machine"]))


def summarise(rows):
    """Returns medians, spread, and the lock's share of the time."""
    groups = grouped(rows, KEY)
    summary = []
    for (fits, keys, work, processes), group in groups.items():
        if work in LOCK_OF:
            lock = known(groups[fits, keys, LOCK_OF[work], processes], "ns")
            rates, times = ([row[name] for row in group] for name in ("per_second", "ns"))
            row = {**dict(zip(KEY, (fits, keys, work, processes))), "partitions": group[0]["partitions"], "runs": len(group)}
            row |= dict(zip(("per_second", "least", "most"), middle(rates))) | dict(zip(("ns", "shortest", "longest"), middle(times)))
            summary.append({**row, "waits": known(group, "waits"), "lock": lock / row["ns"]})
    return summary


def draw(options, summary):
    cases = grouped(summary, ("fits", "keys"))
    figure, axes = plt.subplots(1, len(cases), figsize=(14, 4.6), sharey=True)
    spread = max(row["runs"] for row in summary) > 1
    said = runs_said(summary, options.seconds) + ("; bars: least to most" if spread else "")
    head(figure, "The tier without SQL", f"Nanoseconds on a processor for one operation, by processes; {said}.")
    for axis, ((fits, keys), rows) in zip(axes, cases.items()):
        for work, colour in COLOURS.items():
            mine = [row for row in rows if row["work"] == work]
            error = [[row["ns"] - row["shortest"] for row in mine], [row["longest"] - row["ns"] for row in mine]]
            points = [row["processes"] for row in mine], [row["ns"] for row in mine]
            axis.errorbar(*points, error if spread else None, color=colour, marker="o", label=work, capsize=2)
        axis.set_title(f"{keys}, {fits} fit{'' if fits == 'all' else 's'}", pad=8)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axis.set_xlabel("processes")
        axis.grid(axis="y", color=FAINT, linewidth=0.8)
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="upper right", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.86))
    figure.savefig(options.out / "scaling.png")
    plt.close(figure)


def render(options, summary, machine):
    parts = [
        f"""# The tier without SQL

{ground(machine)}. 1,000,000 keys of 16 bytes, 37-byte values, {summary[0]['runs']} repetition(s) of {options.seconds:g} s a line, medians. ns: processor
time for one, so what others do on the machine is hardly in it. Lock: the same loop with the locks alone, as a share of that. Waits: of a
million operations so many found a lock taken. Where a quarter fits, most uniform gets are misses. The machine's load beside this was
{machine['load_at_start']:.1f}: rates are no better than that.

![Processor time](scaling.png)"""
    ]
    order = list(LOCK_OF)
    for (fits, keys), rows in grouped(summary, ("fits", "keys")).items():
        lines = [
            (row["work"], row["processes"], f"{row['ns']:.0f}", f"{row['shortest']:.0f} to {row['longest']:.0f}", f"{row['lock']:.0%}",
             f"{row['waits'] * 1e6:,.0f}", f"{row['per_second'] / 1e6:.2f}", f"{row['least'] / 1e6:.2f} to {row['most'] / 1e6:.2f}")
            for row in sorted(rows, key=lambda row: (order.index(row["work"]), row["processes"]))
        ]  # fmt: skip
        title = f"## Keys {keys}, {'all fit' if fits == 'all' else 'a quarter fits'}: {rows[0]['partitions']:.0f} partitions"
        table = markdown(("work", "processes", "ns", "spread", "lock", "waits", "millions/s", "spread"), lines)
        parts.append(f"{title}\n\n{table}")
    return "\n\n".join(parts)
