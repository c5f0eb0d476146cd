"""Tests the counts of instructions: the parser of callgrind's files, and the difference that gives the cost of one
request."""

import unittest

from bench import instructions


class Total(unittest.TestCase):
    def test_the_last_line_names_the_sum(self):
        self.assertEqual(instructions.total("events: Ir\nfn=(1)\n12 3\n\ntotals: 4711\n"), 4711)

    def test_a_file_that_is_not_yet_whole_counts_as_none(self):
        self.assertEqual(instructions.total("events: Ir\nfn=(1)\n12 3\n"), 0)


class ForEach(unittest.TestCase):
    def test_what_both_runs_share_cancels_out(self):
        self.assertEqual(instructions.for_each(100, lambda requests: 1_000_000 + 7 * requests), 7)
