"""Tests that the headline agrees with its figures, whether they are good or bad for pgcache."""

import unittest

from bench import headline
from bench.systems import ALL

USUAL = {"redis": 100, "table_unlogged": 30, "pgcache_hot": 45, "pgcache_memory": 45, "resp_memory": 95}


def summary(**rates):
    return [
        {"system": name, "workload": workload, "tps": 1000.0 * rate, "cpu": 1.0}
        for name, rate in (USUAL | rates).items()
        for workload in headline.ORDER
    ]


class Headline(unittest.TestCase):
    def test_as_fast_as_redis_is_said_so(self):
        moving, caching, choosing = headline.conclusions(summary(), 0.1)
        self.assertIn("answers 0.95 times as many reads as Redis, 0.95 times the writes and 0.95 times the mix: a program that moves from Redis keeps its speed.", moving)
        self.assertIn("speeds up reads from the hot tier, reads of a memory cache and writes to it", caching)
        self.assertIn("0.45 times as many reads as Redis by SQL and 0.95 times by the protocol: ask for single keys by the protocol", choosing)

    def test_a_loss_is_said_so(self):
        moving, caching, choosing = headline.conclusions(summary(resp_memory=40, pgcache_hot=30, pgcache_memory=38), 0.1)
        self.assertIn("keeps 40% of its speed where it loses most", moving)
        self.assertIn("the cache speeds up reads of a memory cache and writes to it", caching)
        self.assertIn("neither way is slower", choosing)
        self.assertIn("a plain table is as fast or faster", headline.conclusions(summary(pgcache_hot=30, pgcache_memory=20), 0.1)[1])

    def test_what_was_not_measured_is_not_concluded(self):
        rows = [row for row in summary() if row["system"] != "resp_memory"]
        self.assertEqual(len(headline.conclusions(rows, 0.1)), 1)

    def test_beside_other_programs_processor_time_is_compared(self):
        rows = [row | ({"cpu": 0.5} if row["system"] == "resp_memory" else {}) for row in summary()]
        warning, moving, *_ = headline.conclusions(rows, 1.5)
        self.assertIn("Other programs took 1.5 cores", warning)
        self.assertIn("answers 1.90 times as many reads as Redis", moving)

    def test_a_row_has_the_version_of_a_redis_and_a_cell_for_each_head(self):
        rows = list(headline.cells(summary(), {"redis": {"version": "Redis 7.0.15"}}))
        self.assertEqual(rows[0], ("Redis 7.0.15", "100,000", "100,000", "100,000", "10.0", "10.0", "10.0"))
        self.assertEqual({len(row) for row in rows}, {len(headline.HEAD)})
        options = next(system for system in ALL if system.name == "redis_new_no_save")
        self.assertEqual(headline.called(options, {options.name: {"version": "Redis 8.4.0"}}), "Redis 8.4.0, no snapshots")
