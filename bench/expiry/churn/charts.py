"""Charts over time, a row of panels for each case, one colour a system."""

from rounds.charts import FAINT, STYLE, head, plt

from .cases import CASES, SYSTEMS

MB = 1024**2


def draw(folder, runs):
    with plt.rc_context({**STYLE, "axes.spines.left": True}):
        for case in CASES:
            mine = [run for run in runs if run["case"] == case.name]
            if mine:
                draw_case(folder, case, mine)


def draw_case(folder, case, runs):
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.8))
    head(figure, case.title, "Dashed: twice a fresh table of the entries that lived in the last two sweep intervals.")
    for run in runs:
        system = next(system for system in SYSTEMS if system.name == run["system"])
        size_panel(axes[0], run, system)
        hot_panel(axes[1], run, system)
        lag_panel(axes[2], run, system)
    for axis, title in zip(axes, ("Table, indexes, TOAST: MB", "HOT share of updates, %", "Longest expired row: s")):
        axis.set_title(title, pad=8)
        axis.set_xlabel("seconds")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color=FAINT, linewidth=0.8)
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.87))
    figure.savefig(folder / f"case_{case.name}.png")
    plt.close(figure)


def total(sample):
    return sample["heap"] + sample["index"] + sample["toast"]


def size_panel(axis, run, system):
    axis.plot([s["t"] for s in run["samples"]], [total(s) / MB for s in run["samples"]], color=system.colour,
              label=system.label)  # fmt: skip
    rows = [s for s in run["samples"] if "lived" in s]
    bound = [2 * s["lived"] * run["fresh_row"] / MB for s in rows]
    axis.plot([s["t"] for s in rows], bound, color=system.colour, linestyle="--", linewidth=0.8)


def hot_panel(axis, run, system):
    pairs = list(zip(run["samples"], run["samples"][5:]))
    share = [(later["t"], 100 * (later["hot"] - s["hot"]) / (later["updated"] - s["updated"]))
             for s, later in pairs if later["updated"] > s["updated"]]  # fmt: skip
    axis.plot([t for t, _ in share], [percent for _, percent in share], color=system.colour)


def lag_panel(axis, run, system):
    rows = [s for s in run["samples"] if "lag" in s]
    axis.plot([s["t"] for s in rows], [s["lag"] for s in rows], color=system.colour, marker=".")
