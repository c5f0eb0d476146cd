"""Tests the charts: a single run shows no spread, and the figure beside a bar has its unit."""

import unittest

from bench import charts
from bench.systems import ALL


def row(runs, **more):
    return {"system": ALL[0].name, "workload": "read", "tps": 2000, "tps_min": 1000, "tps_max": 3000, "runs": runs, **more}


class Charts(unittest.TestCase):
    def drawn(self, draw):
        """Returns the chart as it would be saved: its axes and all of its texts."""
        kept = []
        save, charts.save = charts.save, lambda figure, *_: kept.append(figure)
        self.addCleanup(setattr, charts, "save", save)
        draw()
        (figure,) = kept
        self.addCleanup(charts.plt.close, figure)
        words = [text.get_text() for part in (figure, *figure.axes) for text in part.texts]
        return figure.axes[0], words

    def throughput(self, runs):
        return self.drawn(lambda: charts.throughput(None, "throughput", "Requests", [row(runs)], "said"))

    def test_several_runs_have_their_spread(self):
        axis, words = self.throughput(5)
        self.assertEqual(len(axis.lines), 1)
        self.assertIn("Bars: said. Lines: slowest and fastest run.", words)

    def test_one_run_has_none(self):
        axis, words = self.throughput(1)
        self.assertEqual(len(axis.lines), 0)
        self.assertIn("Bars: said.", words)

    def test_the_figure_beside_a_latency_says_which_it_is(self):
        latency = row(5, p50_ms=0.1, p95_ms=0.2, p99_ms=0.42)
        _, words = self.drawn(lambda: charts.latency(None, [latency], "said"))
        self.assertIn("p99 0.42", words)
