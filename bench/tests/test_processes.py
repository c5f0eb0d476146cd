"""Tests the CPU seconds of a server whose child processes start and end."""

import os
import subprocess
import sys
import unittest

from bench import processes

BURN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
SERVER = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", '''{BURN}'''])
print("burnt", flush=True)
sys.stdin.read()
"""
SHARED = """
import mmap, os, sys
memory = mmap.mmap(-1, 64 << 20)
child = os.fork()
if child == 0:
    for place in range(0, 64 << 20, 4096):
        memory[place] = 1
    os._exit(0)
os.waitpid(child, 0)
print("touched", flush=True)
sys.stdin.read()
"""


class CpuSeconds(unittest.TestCase):
    def test_a_child_that_has_exited_still_counts(self):
        words = [sys.executable, "-c", SERVER]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            server.stdout.readline()
            self.assertEqual(processes.children(server.pid), [])
            self.assertGreater(processes.cpu_seconds(server.pid), 0.28)
            server.stdin.close()

    def test_a_living_child_counts_and_memory_is_seen(self):
        words = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            child.stdout.readline()
            self.assertIn(child.pid, processes.children(os.getpid()))
            self.assertGreater(processes.pss_mb(child.pid), 1)
            child.stdin.close()
            child.wait()

    def test_of_the_children_only_those_of_that_name_count(self):
        for title, least, most in ((" busy-child", 0.28, 9), ("another", 0, 0)):
            words = [sys.executable, "-c", f"{BURN}\nprint('burnt', flush=True)\nimport sys; sys.stdin.read()", "busy-child"]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                child.stdout.readline()
                used = processes.cpu_seconds_of(os.getpid(), title)
                child.stdin.close()
            self.assertTrue(least <= used <= most, used)

    @unittest.skipUnless(os.geteuid() == 0, "only root may look at another's mappings")
    def test_shared_memory_counts_when_who_touched_it_is_gone(self):
        words = [sys.executable, "-c", SHARED]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            server.stdout.readline()
            self.assertGreater(processes.pss_mb(server.pid), 64)
            server.stdin.close()
