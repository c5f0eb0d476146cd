"""Tests the page: it reports missed goals, invents nothing that was not measured, and includes every benchmark."""

import json
import tempfile
import unittest
from pathlib import Path

from bench import page, promises, suite
from bench.__main__ import WORKLOADS

MACHINE = {
    "day": "2000-01-01",
    "cpu": "some",
    "cores": 2,
    "memory_gb": 1,
    "system": "some",
    "kernel": "6",
    "load_at_start": 0,
}

TIER = {"runs": 5, "clients": 8, "entries": 1000, "versions": ["Postgres"]}


def ratio(what, median, must=1.0, aim=1.2):
    return {"what": what, "must": must, "aim": aim, "median": median, "least": median, "most": median}


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)
        (self.out / "machine.json").write_text(json.dumps(MACHINE))

    def tier(self, *ratios):
        (self.out / "tier").mkdir()
        (self.out / "tier" / "summary.json").write_text(json.dumps({**TIER, "ratios": ratios}))

    def test_a_ratio_below_must_is_a_loss(self):
        self.tier(ratio("reads", 0.9), ratio("writes", 1.1))
        self.assertEqual(len(promises.missed(self.out)), 1)
        self.assertIn("reads: 0.90, below the promised 1.00", page.write(self.out, []).read_text())

    def test_nanoseconds_are_to_be_low(self):
        self.assertEqual(promises.verdict(ratio("a hit inside a query, ns", 300, 400, 250)), "enough")
        self.assertEqual(promises.verdict(ratio("a hit inside a query, ns", 500, 400, 250)), "missed")
        self.assertEqual(promises.verdict(ratio("reads", 1.3)), "reached")

    def test_a_part_that_did_not_run_is_named(self):
        text = page.write(self.out, suite.planned(full=False)).read_text()
        self.assertIn("Not run here: instructions, tier, workloads-base", text)

    def test_the_report_of_an_unknown_benchmark_becomes_a_section(self):
        part = suite.Part("new", "new", "new", "", 1)
        (self.out / "new").mkdir()
        (self.out / "new" / "ended.json").write_text('{"command": "bench/run.sh new", "seconds": 1}')
        (self.out / "new" / "report.md").write_text("# New\n\n![chart](a.png) [there](https://example.org)\n")
        text = page.write(self.out, [part]).read_text()
        self.assertIn("## New\n\n![chart](new/a.png) [there](https://example.org)", text)

    def test_every_workload_takes_part(self):
        self.assertEqual({part.workload for part in suite.planned(full=True)}, set(WORKLOADS))

    def test_a_part_is_found_by_its_name_and_by_its_workload(self):
        self.assertEqual([part.name for part in suite.planned(False, ("workloads-tcp",))], ["workloads-tcp"])
        self.assertIn("workloads-tcp", {part.name for part in suite.planned(False, ("workloads",))})
