"""Compares the copies of the distribution of keys, which several files contain."""

import unittest

from bench import key_distribution as kd
from bench.base import ROOT


class KeyDistribution(unittest.TestCase):
    def test_a_quarter_more_slots_than_entries_make_eighty_percent(self):
        entries = 1000
        existing = sum(1 for n in range(kd.slots(entries)) if n % 5)
        self.assertEqual(existing, entries)
        self.assertEqual(existing / kd.slots(entries), kd.HIT_RATE)

    def test_keys_are_uuids_of_36_bytes(self):
        key = f"{kd.PREFIX}{kd.PGBENCH_OFFSET}"
        self.assertRegex(key, r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9]{12}$")

    def test_the_driver_has_the_same_prefix(self):
        self.assertIn(f'b"{kd.PREFIX}"', (ROOT / "bench/driver/src/key_distribution.rs").read_text())

    def test_values_have_the_size_asked_for_and_never_change(self):
        self.assertEqual(len(kd.value(37)), 37)
        self.assertEqual(kd.value(37), kd.value(37))
        self.assertTrue(kd.value(37).isalnum())
