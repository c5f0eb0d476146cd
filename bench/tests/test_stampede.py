"""Tests the arithmetic of the stampede's report, against figures computed by hand."""

import unittest

from bench.stampede import SCENARIOS, attainable_hit_rate, failures, queries_wanted


class Arithmetic(unittest.TestCase):
    def test_published_figures_agree_with_each_other(self):
        for scenario in SCENARIOS:
            hit_rate, queries, _ = scenario.published
            self.assertAlmostEqual(1 - queries / scenario.published_requests, hit_rate, delta=0.002)

    def test_no_more_queries_than_requests(self):
        for scenario in SCENARIOS:
            self.assertLessEqual(queries_wanted(scenario, 1, 10), 1.0001)

    def test_endless_traffic_needs_each_key_once_a_ttl(self):
        fast = SCENARIOS[0]
        self.assertAlmostEqual(queries_wanted(fast, 1e12, 1000), 5_000 / 1 + 1_000 / 0.5, delta=20)

    def test_the_pool_bounds_the_queries(self):
        fast = SCENARIOS[0]
        self.assertAlmostEqual(attainable_hit_rate(fast, 1e6, 10), 1 - fast.capacity / 1e6)

    def test_what_must_not_happen_fails_the_run(self):
        good = {"scenario": "fast", "mode": "lease", "errors": 0, "wrong": 0, "queries": 100, "seconds": 1.0, "capacity_s": 100}
        self.assertEqual(failures([good]), [])
        for bad in ({"errors": 1, "first_error": "why"}, {"wrong": 1}, {"queries": 201}):
            self.assertEqual(len(failures([good | bad])), 1, bad)
