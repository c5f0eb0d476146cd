"""How do get and set of the tier scale with processes? A table, a chart, and each single figure.

The native program measures; each repetition takes all lines in turn, and the median over repetitions counts. The
chart shows processor time, which the load of others on the machine hardly changes: a flat line scales.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

from rounds import machine
from rounds.charts import FAINT, STYLE, head, plt
from rounds.command import output

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/bench-tier/release/tier-scaling"
LOCK_OF = {"get": "lock shared", "set": "lock exclusive", "get by 32": "lock shared"}
COLOURS = {"get": "#2a6f97", "set": "#c44536", "get by 32": "#6a994e"}


def main():
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    options.load = os.getloadavg()[0]
    rows = []
    for repetition in range(options.repeats):
        lines = output([PROGRAM, options.seconds]).splitlines()
        rows += [{"repetition": repetition, **json.loads(line)} for line in lines]
    (options.out / "scaling.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = summarise(rows)
    with plt.rc_context({**STYLE, "axes.spines.left": True, "ytick.left": True}):
        draw(options.out, summary)
    report = render(options, summary)
    (options.out / "scaling.md").write_text(report)
    print(report)


def read_options():
    parser = argparse.ArgumentParser(prog="scaling.sh")
    parser.add_argument("--seconds", type=float, default=0.7, help="of a line; there are 80")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench" / time.strftime("scaling-%Y%m%d-%H%M%S"))
    return parser.parse_args()


def summarise(rows):
    """By what fits, law, work and number of processes: medians, spread, and the lock's share of the time."""
    groups = {}
    for row in rows:
        groups.setdefault((row["fits"], row["law"], row["work"], row["processes"]), []).append(row)
    middle = {key: {name: median(row[name] for row in group) for name in ("per_second", "ns", "waits", "partitions")}
              for key, group in groups.items()}  # fmt: skip
    summary = []
    for (fits, law, work, processes), found in middle.items():
        if work not in LOCK_OF:
            continue
        lock = middle[fits, law, LOCK_OF[work], processes]["ns"]
        rates, times = ([row[name] for row in groups[fits, law, work, processes]] for name in ("per_second", "ns"))
        summary.append({"fits": fits, "law": law, "work": work, "processes": processes, **found, "lock": lock / found["ns"],
                        "least": min(rates), "most": max(rates), "shortest": min(times), "longest": max(times)})  # fmt: skip
    return summary


def draw(folder, summary):
    cases = [(fits, law) for fits in ("all", "a quarter") for law in ("uniform", "zipf")]
    figure, axes = plt.subplots(1, len(cases), figsize=(14, 4.6), sharey=True)
    head(figure, "The tier without SQL", "Nanoseconds on a processor for one operation, by the number of processes.")
    for axis, (fits, law) in zip(axes, cases):
        for work, colour in COLOURS.items():
            mine = [row for row in summary if (row["fits"], row["law"], row["work"]) == (fits, law, work)]
            spread = [[row["ns"] - row["shortest"] for row in mine], [row["longest"] - row["ns"] for row in mine]]
            axis.errorbar([row["processes"] for row in mine], [row["ns"] for row in mine], spread, color=colour, marker="o",
                          label=work, capsize=2)  # fmt: skip
        axis.set_title(f"{law}, {fits} fit" if fits == "all" else f"{law}, {fits} fits", pad=8)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axis.set_xlabel("processes")
        axis.grid(axis="y", color=FAINT, linewidth=0.8)
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="upper right", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.86))
    figure.savefig(folder / "scaling.png")
    plt.close(figure)


def render(options, summary):
    system = machine.describe()
    lines = ["# The tier without SQL", "",
             f"{system['cpu']}, {system['cores']} cores; {system['system']}, Linux {system['kernel']}. 1,000,000 keys of 16 bytes, "
             f"37-byte values, {options.repeats} repetitions of {options.seconds:g} s a line, medians. ns: processor time for one, so "
             "what others do on the machine is hardly in it. Lock: the same loop with the locks alone, as a share of that. Waits: of a "
             "million operations so many found a lock taken. Where a quarter fits, most uniform gets are misses.", "",
             f"The machine's load beside this was {options.load:.1f}: rates are no better than that.", "",
             "![Processor time](scaling.png)"]  # fmt: skip
    for fits, law in dict.fromkeys((row["fits"], row["law"]) for row in summary):
        mine = [row for row in summary if (row["fits"], row["law"]) == (fits, law)]
        lines += ["", f"## Keys {law}, {'all fit' if fits == 'all' else 'a quarter fits'}: {mine[0]['partitions']:.0f} partitions", "",
                  "| work | processes | ns | spread | lock | waits | millions/s | spread |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
        for row in sorted(mine, key=lambda row: (list(LOCK_OF).index(row["work"]), row["processes"])):
            lines.append(f"| {row['work']} | {row['processes']} | {row['ns']:.0f} | {row['shortest']:.0f} to {row['longest']:.0f} "
                         f"| {row['lock']:.0%} | {row['waits'] * 1e6:,.0f} | {row['per_second'] / 1e6:.2f} "
                         f"| {row['least'] / 1e6:.2f} to {row['most'] / 1e6:.2f} |")  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
