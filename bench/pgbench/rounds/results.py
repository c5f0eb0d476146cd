"""The folder of one run: a line for each timed run, the raw outputs, and at the end the summary.

A run that was stopped goes on in the same folder: a system that ended in a repetition is not measured again there.
"""

import json
import shutil
import tarfile
from statistics import median

from . import stats
from .plan import ROOT
from .systems import ROUNDS

PROMISED = ("round", "system", "tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu", "rss_mb", "runs")


class Results:
    def __init__(self, plan):
        self.plan, self.folder = plan, plan.out
        self.raw = self.folder / "raw"
        self.raw.mkdir(parents=True, exist_ok=True)
        self.ended = []  # [repetition, system] pairs
        self.runs = []
        self.facts = {}  # what servers say of themselves: {system: {...}}
        self.resume()

    @property
    def stopped(self):
        """Kept while a run goes on."""
        return self.folder / "stopped.json"

    def resume(self):
        journal = self.folder / "runs.jsonl"
        if self.stopped.exists():
            kept = json.loads(self.stopped.read_text())
            self.ended, self.facts = kept["ended"], kept["facts"]
            rows = [json.loads(line) for line in journal.read_text().splitlines()]
            self.runs = [row for row in rows if [row["repetition"], row["system"]] in self.ended]
        journal.write_text("".join(json.dumps(row) + "\n" for row in self.runs))

    def end(self, repetition, system):
        self.ended.append([repetition, system])
        self.stopped.write_text(json.dumps({"ended": self.ended, "facts": self.facts}))

    def add(self, repetition, row, result, stdout):
        row = {"repetition": repetition, **row}
        self.runs.append(row)
        with open(self.folder / "runs.jsonl", "a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        name = f"{repetition}-{row['system']}-{row['round']}-{row['tool']}-{row['threads']}"
        said = stdout if row["tool"] != "client" else without_latency(stdout)
        (self.raw / f"{name}.out").write_text(said.replace(f"{ROOT}/", ""))
        if result["counts"]:
            lines = (f"{us} {count}\n" for us, count in sorted(result["counts"].items()))
            (self.raw / f"{name}.latency").write_text("".join(lines))

    def finish(self):
        """summary.json has one row for each round and system; by_tool.json also floors and the slower tools."""
        by_tool = stats.summarise(self.runs)
        summary = [self.with_hit_rate(row) for row in stats.best(by_tool) if row["round"] in ROUNDS]
        self.facts["other_cpu"] = self.noise()
        self.write("by_tool.json", by_tool)
        self.write("summary.json", summary)
        self.write("facts.json", self.facts)
        self.pack()
        self.stopped.unlink(missing_ok=True)
        return summary, by_tool

    def with_hit_rate(self, row):
        """Where the winning tool counts no hits, what the checked pass of the same scripts found."""
        checked = self.facts.get(row["system"], {}).get("check", {}).get("hit_rate")
        return row | {"hit_rate": row["hit_rate"] or (checked if row["round"] != "write" else None)}

    def noise(self):
        """Cores that others took while something was timed: the median run and the worst."""
        others = [run["other_cpu"] for run in self.runs]
        return {"median": round(median(others), 2), "most": round(max(others), 2)}

    def write(self, name, content):
        (self.folder / name).write_text(json.dumps(content, indent=1) + "\n")

    def pack(self):
        with tarfile.open(self.folder / "raw.tar.gz", "w:gz") as tar:
            tar.add(self.raw, arcname="raw")
        shutil.rmtree(self.raw)


def without_latency(stdout):
    """The histogram goes to a file of its own."""
    seen = json.loads(stdout)
    seen.pop("latency")
    return json.dumps(seen) + "\n"
