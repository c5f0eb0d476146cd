"""Tests the arithmetic of the hit rates: the sizes of the published cases, and the value of a hit rate."""

import unittest

from bench import hit_rate as cases


class Cases(unittest.TestCase):
    def test_keys_and_gets_are_the_published_ones(self):
        found = {case.name: (case.keys, case.gets) for case in cases.CASES}
        self.assertEqual(found, {"2GiB": (16_352, 65_408), "100MiB": (819_200, 3_276_800)})

    def test_memory_beyond_the_limit_costs_and_less_earns_nothing(self):
        self.assertAlmostEqual(cases.per_memory(0.7144, 140, 100), 0.7144 / 1.4)
        self.assertEqual(cases.per_memory(0.7, 80, 100), 0.7)

    def test_scaling_keeps_the_data_set_four_times_the_limit(self):
        for case in cases.CASES:
            small = case.scaled(16)
            self.assertAlmostEqual(small.keys * small.value_size / small.limit, 4, delta=0.05)

    def test_a_number_is_a_size_of_values_under_the_default_limit(self):
        (case,) = cases.cases_named("32000")
        self.assertEqual((case.limit_mb, case.value_size, case.keys), (64, 32_000, 8_388))

    def test_every_competitor_is_told_the_limit(self):
        for system in cases.SYSTEMS:
            told = system.limited(100).options
            self.assertTrue(system.is_postgres or any("100" in option for option in told), system.name)
