"""A run that was stopped goes on where a system had ended, and measures a half-done system again."""

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from rounds.results import Results


def row(system):
    return {"system": system, "round": "read", "tool": "pgbench", "threads": 1, "tps": 1.0}


class Resume(unittest.TestCase):
    def test_only_what_ended_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = SimpleNamespace(out=Path(folder))
            first = Results(plan)
            first.add(0, row("whole"), {"counts": {}}, "")
            first.facts["whole"] = {"version": "1"}
            first.end(0, "whole")
            first.add(0, row("half"), {"counts": {}}, "")
            second = Results(plan)
        self.assertEqual([run["system"] for run in second.runs], ["whole"])
        self.assertEqual((second.ended, second.facts), ([[0, "whole"]], {"whole": {"version": "1"}}))

    def test_a_folder_of_another_run_starts_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = SimpleNamespace(out=Path(folder))
            Results(plan).add(0, row("old"), {"counts": {}}, "")
            self.assertEqual(Results(plan).runs, [])


if __name__ == "__main__":
    unittest.main()
