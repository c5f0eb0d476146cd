import unittest

from kv import failures, median
from plan import LOADS, SYSTEMS

GOOD = {
    "load": "watchers", "system": "memory", "version": "1", "operations": 1000, "rate": 500.0, "errors": 0, "wrong": 0,
    "lost": 0, "mean_ms": 1.0, "p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0,
}


class Judgement(unittest.TestCase):
    def test_a_good_run_passes(self):
        self.assertEqual(failures([GOOD]), [])

    def test_each_thing_that_must_not_happen_fails_the_run(self):
        for bad in ({"errors": 1, "first_error": "why"}, {"wrong": 1}, {"lost": 1}, {"operations": 0}):
            self.assertEqual(len(failures([GOOD, GOOD | bad])), 1, bad)

    def test_the_median_hides_no_failure(self):
        row = median([GOOD, GOOD | {"rate": 900.0, "lost": 2}, GOOD | {"rate": 700.0}])
        self.assertEqual((row["rate"], row["spread"], row["lost"]), (700.0, [500.0, 900.0], 2))


class Plan(unittest.TestCase):
    def test_every_load_runs_beside_etcd_and_transactions_not_on_memory(self):
        self.assertTrue(all(load.runs_on(system) for load in LOADS for system in SYSTEMS[1:]))
        self.assertEqual([load.name for load in LOADS if not load.runs_on("memory")], ["transactions"])


if __name__ == "__main__":
    unittest.main()
