"""Tests the arithmetic of batches that are split over servers."""

import unittest

from bench.spread import call_and_key, servers_asked


class Spread(unittest.TestCase):
    def test_a_key_asks_one_server_and_very_many_keys_ask_all(self):
        self.assertAlmostEqual(servers_asked(1, 10), 1)
        self.assertAlmostEqual(servers_asked(2, 2), 1.5)
        self.assertEqual(servers_asked(100, 1), 1)
        self.assertAlmostEqual(servers_asked(100_000, 10), 10)

    def test_the_line_has_a_call_and_its_keys(self):
        call, key = call_and_key({10: 30.0, 100: 120.0})
        self.assertAlmostEqual(call, 20)
        self.assertAlmostEqual(key, 1)
