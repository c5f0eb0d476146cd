"""Tests the arithmetic behind every figure."""

import unittest
from collections import Counter

from bench import stats


def run(workload="read", system="redis", tool="driver", threads=1, tps=100.0, **others):
    row = {"workload": workload, "system": system, "tool": tool, "threads": threads, "tps": tps, "hit_rate": None}
    row |= {name: 1.0 for name in ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "cpu", "client_cpu", "other_cpu", "rss_mb")}
    return row | others


def summarise(rows):
    return stats.summarise(rows, ("workload", "system", "tool", "threads"), ("tps", "hit_rate"))


class Percentiles(unittest.TestCase):
    def test_nearest_rank_over_one_to_a_hundred(self):
        counts = Counter(range(1, 101))
        self.assertEqual([stats.percentile(counts, s) for s in (0.50, 0.95, 0.99, 1.0)], [50, 95, 99, 100])

    def test_a_rare_slow_request_moves_p99_and_not_p50(self):
        counts = Counter({10: 980, 5000: 20})
        self.assertEqual(stats.percentile(counts, 0.50), 10)
        self.assertEqual(stats.percentile(counts, 0.98), 10)
        self.assertEqual(stats.percentile(counts, 0.99), 5000)

    def test_one_request_is_every_percentile(self):
        self.assertEqual(stats.percentile(Counter({7: 1}), 0.01), 7)

    def test_nothing_recorded_is_an_error_not_a_zero(self):
        with self.assertRaises(ValueError):
            stats.percentile(Counter(), 0.5)

    def test_milliseconds_come_from_microseconds(self):
        latency = stats.latency_of(Counter({1500: 10}), 1.5)
        self.assertEqual((latency["p50_ms"], latency["p99_ms"]), (1.5, 1.5))


class PgbenchLog(unittest.TestCase):
    def test_the_third_field_is_the_time(self):
        lines = ["0 199 2241 0 1175850568 995598\n", "1 3 84 1 1175850568 998079\n", "0 200 84 0 1 2\n"]
        self.assertEqual(stats.count_latencies(lines), Counter({84: 2, 2241: 1}))


class Summary(unittest.TestCase):
    def test_median_and_spread_over_repetitions(self):
        row = summarise([run(tps=t) for t in (90.0, 300.0, 100.0)])[0]
        self.assertEqual((row["tps"], row["tps_min"], row["tps_max"], row["runs"]), (100.0, 90.0, 300.0, 3))

    def test_tools_and_threads_are_kept_apart(self):
        rows = summarise([run(), run(threads=2), run(tool="redis-benchmark"), run()])
        self.assertEqual([row["runs"] for row in rows], [2, 1, 1])

    def test_best_takes_the_higher_median_not_the_higher_run(self):
        steady = [run(tps=100.0) for _ in range(3)]
        lucky = [run(tps=t, threads=2) for t in (90.0, 90.0, 500.0)]
        winner = stats.best(summarise(steady + lucky))
        self.assertEqual([(row["threads"], row["tps"]) for row in winner], [(1, 100.0)])

    def test_hit_rate_ignores_tools_that_count_none(self):
        self.assertEqual(stats.known([run(hit_rate=0.8), run(), run(hit_rate=0.82)], "hit_rate"), 0.81)
        self.assertIsNone(stats.known([run()], "hit_rate"))
