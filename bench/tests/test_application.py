"""Tests the conditions under which a run of the application fails."""

import unittest

from bench.application import BEHIND_MS, failures


class Failures(unittest.TestCase):
    def test_what_must_not_happen_fails_the_run(self):
        good = {"scenario": "fast", "writes": 100, "errors": 0, "wrong": 0, "behind_ms": 1.0, "queries": 100, "seconds": 1.0,
                "capacity_s": 100}  # fmt: skip
        self.assertEqual(failures(good), [])
        for bad in ({"errors": 1, "first_error": "why"}, {"wrong": 1}, {"queries": 201}, {"behind_ms": BEHIND_MS + 1.0}):
            self.assertEqual(len(failures(good | bad)), 1, bad)
