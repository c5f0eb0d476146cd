"""The arithmetic behind the report, against figures worked out by hand."""

import unittest

from law import SCENARIOS, attainable_hit_rate, hit_rate, published_requests, queries_wanted


class Law(unittest.TestCase):
    def test_published_figures_agree_with_each_other(self):
        for scenario in SCENARIOS:
            published = scenario.published
            implied = hit_rate(published_requests(scenario), published.queries)
            self.assertAlmostEqual(implied, published.hit_rate, delta=0.002)

    def test_no_more_queries_than_requests(self):
        for scenario in SCENARIOS:
            self.assertLessEqual(queries_wanted(scenario, 1, 10), 1.0001)

    def test_endless_traffic_needs_each_key_once_a_ttl(self):
        fast = SCENARIOS[0]
        self.assertAlmostEqual(queries_wanted(fast, 1e12, 1000), 5_000 / 1 + 1_000 / 0.5, delta=20)

    def test_the_pool_bounds_the_queries(self):
        fast = SCENARIOS[0]
        self.assertAlmostEqual(attainable_hit_rate(fast, 1e6, 10), 1 - fast.capacity / 1e6)


if __name__ == "__main__":
    unittest.main()
