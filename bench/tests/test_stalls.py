"""Tests the page of the delays that slow operations cause."""

import unittest

from bench.stalls import render


class Stalls(unittest.TestCase):
    def test_what_must_hold_is_made_of_the_time_beside_nothing(self):
        row = {"tps": 1000.0, "p50_ms": 0.1, "p99_ms": 0.5, "longest_ms": 2.0, "p99_ms_min": 0.4, "p99_ms_max": 0.6, "runs": 3}
        machine = {"cpu": "c", "cores": 2, "memory_gb": 4, "system": "s", "kernel": "6"}
        facts = {"machine": machine, "version": "v"}
        page = render([{"thing": "nothing", **row}, {"thing": "row", **row}], facts).splitlines()
        cells = [[cell.strip() for cell in line.split("|")] for line in page if line.startswith("|")]
        self.assertEqual([line[6] for line in cells if line[2] == "1,000"], ["", "2.00"])
