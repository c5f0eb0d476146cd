"""The key law is written down three times; here the copies are held against each other."""

import re
import unittest
from pathlib import Path

from rounds import law

BENCH = Path(__file__).resolve().parents[2]


class KeyLaw(unittest.TestCase):
    def test_a_quarter_more_slots_than_entries_make_eighty_percent(self):
        entries = 1000
        existing = sum(1 for n in range(law.slots(entries)) if n % 5)
        self.assertEqual(existing, entries)
        self.assertEqual(existing / law.slots(entries), law.HIT_RATE)

    def test_keys_are_uuids_of_36_bytes(self):
        key = f"{law.PREFIX}{law.PGBENCH_OFFSET}"
        self.assertRegex(key, r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9]{12}$")

    def test_every_script_and_the_client_use_the_same_prefix_and_offset(self):
        for script in [*BENCH.glob("pgbench/read_*.sql"), *BENCH.glob("pgbench/write_*.sql")]:
            text = script.read_text()
            self.assertIn(f"'{law.PREFIX}' || :n", text, script.name)
            self.assertIn(str(law.PGBENCH_OFFSET), text, script.name)
        self.assertIn(f'b"{law.PREFIX}"', (BENCH / "driver/src/law.rs").read_text())

    def test_a_script_ends_with_its_statement_on_one_line(self):
        for script in BENCH.glob("pgbench/*.sql"):
            last = script.read_text().splitlines()[-1]
            self.assertTrue(re.match(r"(SELECT|INSERT) .*;$", last), script.name)

    def test_values_have_the_size_asked_for_and_never_change(self):
        self.assertEqual(len(law.value(37)), 37)
        self.assertEqual(law.value(37), law.value(37))
        self.assertTrue(law.value(37).isalnum())


if __name__ == "__main__":
    unittest.main()
