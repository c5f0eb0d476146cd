"""Tests the conditions under which a run of the key-value loads fails, and which loads run on which store."""

import unittest

from bench.kv import BAD, FIELDS, LOADS, SYSTEMS, failures
from bench.stats import summarise

GOOD = {
    "load": "watchers", "system": "memory", "version": "1", "operations": 1000, "rate": 500.0, "errors": 0, "wrong": 0,
    "lost": 0, "mean_ms": 1.0, "p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0,
}  # fmt: skip


class Judgement(unittest.TestCase):
    def test_a_good_run_passes(self):
        self.assertEqual(failures([GOOD]), [])

    def test_each_thing_that_must_not_happen_fails_the_run(self):
        for bad in ({"errors": 1, "first_error": "why"}, {"wrong": 1}, {"lost": 1}, {"operations": 0}):
            self.assertEqual(len(failures([GOOD | bad])), 1, bad)

    def test_the_median_counts_and_the_spread_is_kept(self):
        runs = [GOOD, GOOD | {"rate": 900.0}, GOOD | {"rate": 700.0}]
        (row,) = summarise(runs, ("load", "system"), (*FIELDS, *BAD), of="rate")
        self.assertEqual((row["rate"], row["rate_min"], row["rate_max"], row["lost"]), (700.0, 500.0, 900.0, 0))


class Plan(unittest.TestCase):
    def test_every_load_runs_beside_etcd_and_transactions_not_on_memory(self):
        self.assertTrue(all(load.runs_on(system) for load in LOADS for system in SYSTEMS[1:]))
        self.assertEqual([load.name for load in LOADS if not load.runs_on("memory")], ["transactions"])
