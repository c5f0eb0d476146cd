"""Tests pinning: a server and its processes on one core, the client on another, and back again."""

import os
import subprocess
import unittest

from bench import cores

SERVER = "sleep 60 & echo started; wait"


class OneCore(unittest.TestCase):
    @unittest.skipUnless(cores.are_two(), "there is one core only")
    def test_a_server_with_its_children_is_moved_and_given_back(self):
        all_cores = os.sched_getaffinity(0)
        with subprocess.Popen(["sh", "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
            server.stdout.readline()
            pids = [server.pid, *cores.children(server.pid)]
            with cores.one_core_for([server.pid]):
                places = [os.sched_getaffinity(pid) for pid in pids]
                self.assertEqual([len(place) for place in places], [1, 1])
                self.assertEqual(places[0], places[1])
                self.assertFalse(places[0] & os.sched_getaffinity(0))
            self.assertTrue(all(os.sched_getaffinity(pid) == all_cores for pid in (0, *pids)))
            for pid in reversed(pids):
                os.kill(pid, 15)

    def test_a_process_that_is_gone_is_passed_over(self):
        with subprocess.Popen(["true"]) as gone:
            gone.wait()
        cores.place([gone.pid], os.sched_getaffinity(0))
