"""Tests the conditions for a valid run with a table cache, the cost of its requests, and that the report shows a missed
goal."""

import unittest

from bench.base import BenchError
from bench.resp_tables import FIELDS, GROW, GROWN, KINDS, LOADS, READS, SIDES, WRITES, Tables, beside, each, grown_cells, judge, plan, ratio
from bench.stats import summarise

NAMED = {load.name: load for load in LOADS}
NOTHING = {"hot_hits": 0, "table_hits": 0, "misses": 0, "sets": 0, "xids": 0, "wal_bytes": 0}
RUN = {
    "way": "pinned", "load": "unlogged", "clients": 50, "side": "table", "repetition": 0, "tps": 60_000.0, "cpu_us": 12.0,
    "front_us": 4.0, "back_us": 8.0, "p50_ms": 0.5, "p99_ms": 0.9, "batch": 25.0, "wal_bytes": 2.0, "ids": 40_000.0,
}  # fmt: skip


class Runs(unittest.TestCase):
    def test_a_read_past_the_tier_that_the_tier_answered_is_none(self):
        judge(NAMED["past"], "table", 100, NOTHING | {"table_hits": 100})
        for wrong in ({"table_hits": 100, "hot_hits": 1}, {"table_hits": 99}):
            self.assertRaises(BenchError, judge, NAMED["past"], "table", 100, NOTHING | wrong)

    def test_a_hot_read_that_went_to_the_table_is_none(self):
        judge(NAMED["hot"], "table", 100, NOTHING | {"hot_hits": 100})
        for wrong in ({"hot_hits": 100, "table_hits": 1}, {"hot_hits": 99}):
            self.assertRaises(BenchError, judge, NAMED["hot"], "table", 100, NOTHING | wrong)

    def test_a_set_that_stored_nothing_is_none(self):
        judge(NAMED["unlogged"], "table", 100, NOTHING | {"sets": 100})
        self.assertRaises(BenchError, judge, NAMED["unlogged"], "table", 100, NOTHING | {"sets": 99})

    def test_costs_are_those_of_one_request(self):
        used, grown = {"cpu": 0.012, "front": 0.004, "back": 0.008}, NOTHING | {"xids": 40, "wal_bytes": 2_000}
        row = each(NAMED["unlogged"], "table", 1_000, used, grown)
        seen = [round(row[name], 6) for name in ("cpu_us", "front_us", "back_us", "batch", "ids", "wal_bytes")]
        self.assertEqual(seen, [12.0, 4.0, 8.0, 25.0, 40_000.0, 2.0])
        self.assertEqual(set(each(NAMED["unlogged"], "redis", 1_000, used, grown)), {"cpu_us"})
        self.assertEqual(set(each(NAMED["past"], "sql", 1_000, used, grown)), {"cpu_us"})
        self.assertIsNone(each(NAMED["unlogged"], "sql", 1_000, used, NOTHING)["batch"])


class Report(unittest.TestCase):
    def lines(self, *changed, load="unlogged"):
        rows = [RUN | {"load": load} | row for row in changed]
        return list(beside(summarise(rows, ("way", "load", "clients", "side"), FIELDS), NAMED[load]))

    def test_a_missed_must_is_bold_and_stays(self):
        sql, table, redis = self.lines({"side": "sql", "tps": 30_000.0, "cpu_us": 24.0}, {}, {"side": "redis", "tps": 80_000.0})
        self.assertEqual(table[4:8], ("**2.00**", "3", "0.75", "0.7"))
        self.assertEqual((sql[4:6], redis[4:6]), (("1.00", ""), ("2.67", "")))
        self.assertEqual(table[8:12], ("12.00", "0.50", "4.00", "8.00"))

    def test_a_must_that_holds_is_plain(self):
        self.assertEqual(self.lines({"side": "sql", "tps": 20_000.0}, {})[1][4:6], ("3.00", "3"))

    def test_each_head_has_its_cell(self):
        for load, head in (("past", READS), ("unlogged", WRITES)):
            for line in self.lines(*({"side": side} for side in NAMED[load].sides), load=load):
                self.assertEqual(len(line), len(head))
        self.assertEqual(len(grown_cells(RUN | {"tps_min": 1, "tps_max": 2})), len(GROWN))

    def test_a_side_that_was_not_asked_has_no_ratio(self):
        self.assertEqual(ratio(RUN, None, 3.0), ("", ""))
        self.assertEqual(len(self.lines({}, load="hot")), 1)


class Plan(unittest.TestCase):
    def test_only_the_number_of_clients_grows(self):
        wanted = plan(LOADS, [1, 1000], ["pinned"], 2)
        self.assertEqual({clients for _, load, clients, *_ in wanted if load is GROW}, {1, 1000})
        self.assertEqual({clients for _, load, clients, *_ in wanted if load is not GROW}, {50})
        self.assertEqual(len(wanted), len(set(wanted)))

    def test_every_load_asks_a_table_cache_that_is_there(self):
        for load in LOADS:
            self.assertIn("table", load.sides)
            self.assertLessEqual(set(load.sides), set(SIDES))
            self.assertIn(load.table, KINDS)
            self.assertIn(load.table, Tables.NUMBERS)

    def test_sql_is_asked_for_the_same(self):
        self.assertIn("UPDATE SET value", NAMED["logged"].script())
        self.assertIn("SELECT value FROM plain_read WHERE key = :n", NAMED["past"].script())
