"""Tests that a system which returns nothing, or drops writes, gets no figure."""

import unittest
from types import SimpleNamespace

from bench import check
from bench.base import BenchError

JOB = SimpleNamespace(workload="write", tool="driver")


def server(entries=0, copies=None):
    """Returns a server; `copies` is the content of the hot tier of a system that has one."""
    return SimpleNamespace(
        system=SimpleNamespace(name="some", tier=copies is not None),
        setup=SimpleNamespace(entries=1000, value_size=37, tier_mb=2048),
        entries=lambda: entries,
        tier_entries=lambda: copies,
    )


class Check(unittest.TestCase):
    def test_all_misses_are_refused(self):
        with self.assertRaises(BenchError):
            check.timed_run(server(), JOB, {"hit_rate": 0.0, "reads": 100_000})

    def test_all_hits_are_refused_too(self):
        with self.assertRaises(BenchError):
            check.timed_run(server(), JOB, {"hit_rate": 1.0, "reads": 100_000})

    def test_eighty_percent_passes_and_three_points_off_does_not(self):
        check.timed_run(server(), JOB, {"hit_rate": 0.81, "reads": 100_000})
        with self.assertRaises(BenchError):
            check.timed_run(server(), JOB, {"hit_rate": 0.83, "reads": 100_000})

    def test_chance_is_allowed_for_in_a_short_run(self):
        check.timed_run(server(), JOB, {"hit_rate": 0.83, "reads": 1000})

    def test_dropped_writes_are_refused(self):
        check.growth(server(entries=10_900), JOB, {"sets": 11_000, "requests": 11_000}, 1000)
        with self.assertRaises(BenchError):
            check.growth(server(entries=9_000), JOB, {"sets": 11_000, "requests": 11_000}, 1000)

    def test_a_short_preload_is_refused(self):
        check.preload(server(entries=1000))
        with self.assertRaises(BenchError):
            check.preload(server(entries=999))

    def test_a_cold_tier_is_refused(self):
        check.preload(server(entries=1000, copies=1000))
        with self.assertRaises(BenchError):
            check.preload(server(entries=1000, copies=10))

    def test_a_share_of_the_checked_pass_that_strays_is_refused(self):
        self.assertEqual(check.share_of(server(), "new in the mix", 1800, 10_000, 0.18), 0.18)
        with self.assertRaises(BenchError):
            check.share_of(server(), "new in the mix", 4500, 10_000, 0.18)
