"""Tests that the scripts of bench/pgbench use the keys, values and shares of the driver, and that the mixed scripts
repeat the statements of the others."""

import unittest

from bench import key_distribution as kd, scripts
from bench.by_hand import wanted
from bench.systems import SYSTEMS
from bench.tools import BASELINES

READ = ["\\set n 100000000000 + random(0, int(1250000 * :scale) - 1)"]
WRITE = [
    "\\set i random(0, int(1000000 * :scale) - 1)",
    "\\set old 100000000001 + :i / 4 * 5 + mod(:i, 4)",
    "\\set n CASE WHEN random(1, 10) = 1 THEN :old ELSE random(200000000000, 999999999999) END",
]


def lines(name):
    return (scripts.FOLDER / f"{name}.sql").read_text().splitlines()


def without_title(name):
    """Returns a script without its first lines: its subject, and the statements that a session runs once."""
    found = lines(name)[1:]
    return found[found.index("\\endif") + 1 :] if name == "get_table" else found


class Scripts(unittest.TestCase):
    def test_every_script_asks_a_question_or_says_what_it_mixes(self):
        for name in scripts.names():
            self.assertRegex(lines(name)[0], r"^-- (How|What) .*\?|^-- A .*: 80 of 100", name)

    def test_every_script_of_a_system_is_there(self):
        asked = {name for system in SYSTEMS if system.read for name in (system.read, system.write, system.mixed)}
        self.assertEqual(set(scripts.names()), asked | set(BASELINES.values()) | {"get_miss"})

    def test_reads_and_writes_draw_as_the_driver_does(self):
        for system in SYSTEMS:
            if system.read:
                self.assertEqual(without_title(system.read)[: len(READ)], READ)
                self.assertEqual(without_title(system.write)[: len(WRITE)], WRITE)

    def test_every_key_and_value_is_a_parameter_of_the_driver(self):
        for name in scripts.names():
            for sql in scripts.statements(name):
                self.assertEqual(sql.count(scripts.KEY), int(name != "select_1"))
                self.assertEqual(sql.count("'"), 2 * (sql.count(scripts.KEY) + sql.count(scripts.VALUE) + sql.count("'bench.")))

    def test_a_mix_is_the_read_and_the_write_of_its_system(self):
        for system in SYSTEMS:
            if system.read:
                mix = ["\\if random(1, 5) > 1", *without_title(system.read), "\\else", *without_title(system.write), "\\endif"]
                self.assertEqual(lines(system.mixed)[-len(mix) :], mix)

    def test_the_setup_makes_what_every_script_asks(self):
        setup = scripts.SETUP.read_text()
        self.assertIn(f"'{kd.PREFIX}' || ({kd.PGBENCH_OFFSET} + n) AS key", setup)
        self.assertIn(f"\\set value {kd.value(37)}\n", setup)
        for system in SYSTEMS:
            if system.read:
                self.assertIn(f"\\if :{system.table}\n", setup)
                self.assertIn(f"bench.{system.table}", scripts.statement(system.read))

    def test_a_statement_takes_other_keys_values_and_tables(self):
        self.assertEqual(scripts.statement("select_1"), "SELECT 1")
        self.assertEqual(scripts.statement("get_table"), "SELECT cache_get($1, 'bench.unlogged')")
        self.assertEqual(scripts.statement("set_memory", ":n", ":value", "m"), "SELECT cache_set(:n, :value, NULL, 'm')")
        self.assertIn(":value, NULL)\nON CONFLICT", scripts.script("upsert"))
        self.assertIn("\\set n", scripts.script("length", "f({})"))
        self.assertTrue(scripts.script("length", "f({})").endswith("f(SELECT length('6f1d7a52-3c08-4b9e-a5d4-' || :n));\n"))

    def test_a_script_is_judged_by_what_it_says(self):
        self.assertEqual(wanted("get_miss"), {"entries": 0, "overwritten": 0, "reads": 1, "hits": 0, "hot_hits": 0})
        self.assertEqual(wanted("select_by_key")["hits"], kd.HIT_RATE)
        self.assertEqual(wanted("set_logged")["entries"], kd.NEW_SHARE)
        self.assertEqual(round(wanted("mixed_hot")["hot_hits"], 2), 0.64)
        self.assertEqual(wanted("length"), {})
