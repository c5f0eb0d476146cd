"""Tests that a stopped run continues where it ended, and does not repeat finished measurements."""

import tempfile
import unittest
from pathlib import Path

from bench.base import BenchError, Journal, named
from bench.systems import ALL


class Resume(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def test_what_is_there_is_known_to_the_next(self):
        first = Journal(self.out, ("repetition", "system"))
        first.add({"repetition": 0, "system": "redis", "tps": 1.0})
        first.facts["version"] = "1"
        first.write_facts()
        second = Journal(self.out, ("repetition", "system"))
        self.assertTrue(second.has(0, "redis"))
        self.assertFalse(second.has(1, "redis"))
        self.assertEqual(second.facts["version"], "1")

    def test_a_half_done_system_can_be_dropped(self):
        journal = Journal(self.out, ("system",))
        journal.add({"system": "whole"})
        journal.add({"system": "half"})
        journal.keep([row for row in journal.rows if row["system"] == "whole"])
        self.assertEqual([row["system"] for row in Journal(self.out, ("system",)).rows], ["whole"])

    def test_names_are_taken_in_their_order_and_unknown_ones_refused(self):
        self.assertEqual([system.name for system in named(ALL, "table_logged,redis")], ["table_logged", "redis"])
        with self.assertRaises(BenchError):
            named(ALL, "redis,other")
