import tempfile
import unittest
from pathlib import Path

from bench import oracle, trace


class Library:
    """A policy that keeps every entry."""

    def __init__(self):
        self.held = set()

    def get(self, request):
        known = request.obj_id in self.held
        self.held.add(request.obj_id)
        return known


class Request:
    obj_id = obj_size = 0


class TraceTest(unittest.TestCase):
    def test_lines_are_read_with_their_defaults(self):
        lines = ["key,size,op,ttl", "a,10,set,60", "b", "a,,get", "b,5,delete", ""]
        self.assertEqual(list(oracle.requests(lines)), [(1, 82, False), (2, 172, True), (1, 172, True)])

    def test_sets_and_the_first_third_do_not_count(self):
        lines = ["a", "b", "a,1,set", "a", "c", "b"]
        found = oracle.rate(Library(), list(oracle.requests(lines)), Request())
        self.assertAlmostEqual(found, 100 * 2 / 3)

    def test_a_page_without_the_library_says_so(self):
        page = trace.report("t.csv", [["1048576", "9", "50.00", "40.00", "45.00", "44.00"]], [])
        self.assertIn("| 1.00 | 9 | 50.00 | 40.00 | 45.00 | 44.00 |", page)
        self.assertTrue(page.endswith("libCacheSim did not run."))

    def test_a_library_that_fails_leaves_no_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            former, trace.LIBRARY = trace.LIBRARY, Path(folder)
            (Path(folder) / "libcachesim").mkdir()
            (Path(folder) / "libcachesim/__init__.py").write_text("raise RuntimeError")
            (Path(folder) / "t.csv").write_text("a\n")
            self.assertEqual(trace.by_oracle(Path(folder) / "t.csv", [1000]), [])
            trace.LIBRARY = former


if __name__ == "__main__":
    unittest.main()
