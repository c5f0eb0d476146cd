#!/usr/bin/env -S python3 -B
"""Tests the rules of compare.py: each rule removes its own differences, and all other rows are still compared.

Usage: test_compare.py
"""

import unittest

from compare import difference, planted


def result(statement, header, *rows):
    """Returns a result as psql prints it."""
    cells = [line.split("|") for line in (header, *rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [" " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) for line in cells]
    ruler = "+".join("-" * (width + 2) for width in widths)
    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    return "\n".join([statement, lines[0] + " ", ruler, *lines[1:], count, "", ""])


ROWS = result("SELECT * FROM t;", "a|b", "1|x", "2|y")
PLAN = "EXPLAIN (ANALYZE, COSTS OFF) SELECT a FROM t;"
TRIGGERS = "SELECT tgrelid::regclass, tgname FROM pg_trigger;"
DROPPED = "NOTICE:  DROP: orig=t type=trigger identity=pgcache_record on public.t\n"
REFUSED = """ERROR:  cannot alter type of a column used in a trigger definition
DETAIL:  trigger pgcache_columns on table t depends on column "a"
"""
TAKEN = """ERROR:  could not create unique index "onek_unique1_constraint"
DETAIL:  Key (unique1)=(14) is duplicated.
"""
FIRED = "s2: NOTICE:  trigger: name b; when: BEFORE; lev: ROWs; op: INSERT; old: <NULL> new: (k,v)\n"
POINT = "select p from g order by circle(p,1) <-> point(0,0) limit 1;"
EXPIRED = [f"{key}|Mon Jan 01 00:00:00 2001 PST" for key in range(100)]

# The name of an output, its text over plain tables, and its text over attached tables.
SAME = {
    "the order of rows": ("a", ROWS, result("SELECT * FROM t;", "a|b", "2|y", "1|x")),
    "another plan": (
        "a",
        result(PLAN, "QUERY PLAN", "Index Only Scan using t_a on t (actual rows=2 loops=1)", "  Heap Fetches: 0"),
        result(PLAN, "QUERY PLAN", "Seq Scan on t (actual rows=2 loops=1)", "  Filter: pgcache.live(e)", "  Buffers: 1"),
    ),
    "the condition beside a policy": (
        "rowsecurity",
        result(PLAN, "QUERY PLAN", "Seq Scan on t", "  Filter: ((a > 1) AND f_leak(b))"),
        result(PLAN, "QUERY PLAN", "Seq Scan on t", "  Filter: ((a > 1) AND pgcache.live(t.e) AND f_leak(b))"),
    ),
    "the condition before a function that leaks": (
        "rowsecurity",
        result(PLAN, "QUERY PLAN", "Seq Scan on t", "  Filter: f_leak(b)"),
        result(PLAN, "QUERY PLAN", "Seq Scan on t", "  Filter: (attached.pgcache.live(t.e) AND f_leak(b))"),
    ),
    "JSON": (
        "explain",
        result("SELECT jsonb_pretty(x);", "jsonb_pretty", '"Plan": {   +', "}"),
        result("SELECT jsonb_pretty(x);", "jsonb_pretty", '"Plan": {   +', '  "Filter": "pgcache.live(e)"   +', "}"),
    ),
    "an estimate": (
        "stats_ext",
        result("SELECT * FROM check_estimated_rows('t');", "estimated|actual", "96|102"),
        result("SELECT * FROM check_estimated_rows('t');", "estimated|actual", "402|102"),
    ),
    "triggers of the catalog": (
        "triggers",
        result(TRIGGERS, "tgrelid|tgname", "t|mine"),
        result(TRIGGERS, "tgrelid|tgname", "t|mine", "t|pgcache_columns", "t|pgcache_record_truncate"),
    ),
    "triggers of \\d": (
        "a",
        '\\d t\nIndexes:\n    "t_pkey" PRIMARY KEY\n\n' + ROWS,
        '\\d t\nIndexes:\n    "t_pkey" PRIMARY KEY\nTriggers firing always:\n'
        "    pgcache_record AFTER INSERT ON t\nDisabled user triggers:\n    pgcache_columns BEFORE UPDATE ON t\n\n" + ROWS,
    ),
    "triggers that are dropped": ("event_trigger", ROWS, DROPPED + ROWS),
    "a column's type": ("a", ROWS, REFUSED + ROWS),
    "an index over expired rows": ("alter_table", ROWS, TAKEN + ROWS),
    "COPY of expired rows": (
        "misc",
        ROWS + result("SELECT * FROM c EXCEPT ALL SELECT * FROM onek;", "key|onek_expires"),
        ROWS + result("SELECT * FROM c EXCEPT ALL SELECT * FROM onek;", "key|onek_expires", *EXPIRED),
    ),
    "an index-only scan that fails": (
        "gist",
        f"{POINT}\nERROR:  lossy distance functions are not supported in index-only scans\n{ROWS}",
        f"{POINT}\n   p   \n-------\n (0,0)\n(1 row)\n\n{ROWS}",
    ),
    "a trigger that waits": ("eval-plan-qual-trigger", f"step a;\n{FIRED}step b;\n", f"step a;\nstep b;\n{FIRED}"),
}

DIFFERENT = {
    "another value": ("a", ROWS, ROWS.replace("x", "z")),
    "another error": ("a", ROWS, "ERROR:  relation does not exist\n" + ROWS),
    "rows of a plan": (
        "a",
        result(PLAN, "QUERY PLAN", "Seq Scan on t (actual rows=2 loops=1)"),
        result(PLAN, "QUERY PLAN", "Seq Scan on t (actual rows=3 loops=1)"),
    ),
    "a function that leaks before a policy": (
        "rowsecurity",
        result(PLAN, "QUERY PLAN", "Seq Scan on t", "  Filter: ((a > 1) AND f_leak(b))"),
        result(PLAN, "QUERY PLAN", "Seq Scan on t", "  Filter: (f_leak(b) AND (a > 1) AND pgcache.live(e))"),
    ),
    "one more expired row": (
        "misc",
        result("SELECT * FROM c;", "key|onek_expires"),
        result("SELECT * FROM c;", "key|onek_expires", *EXPIRED, "101|Mon Jan 01 00:00:00 2001 PST"),
    ),
    "a trigger that fires once more": ("eval-plan-qual-trigger", "step a;\n" + FIRED, "step a;\n" + FIRED * 2),
    "another trigger": ("a", ROWS, result(TRIGGERS, "tgrelid|tgname", "t|other") + ROWS),
}


class Compare(unittest.TestCase):
    def test_named_differences_are_removed(self):
        for name, (output, plain, attached) in SAME.items():
            with self.subTest(name):
                self.assertNotEqual(plain, attached)
                self.assertEqual(difference(output, plain, attached), [])

    def test_a_planted_or_removed_row_is_found(self):
        seen = 0
        for name, (output, plain, attached) in SAME.items():
            for text in planted(attached):
                with self.subTest(name, text=text):
                    self.assertNotEqual(difference(output, plain, text), [])
                    seen += 1
        self.assertGreater(seen, 10)

    def test_other_differences_are_found(self):
        for name, (output, plain, attached) in DIFFERENT.items():
            with self.subTest(name):
                self.assertNotEqual(difference(output, plain, attached), [])


if __name__ == "__main__":
    unittest.main()
