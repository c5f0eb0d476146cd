#!/usr/bin/env -S python3 -B
"""Runs the program of the session tests and reports: a line for each test, failures with their output, the ten slowest
tests, and leftovers of tests on their servers.

A test that takes longer than BUDGET seconds must be listed in t/slow with a reason; otherwise it fails. The budget
holds for a test that has a core to itself. It grows with the number of tests and the load for each core; above CROWDED
no test fails because of its time.

Usage: sessions.py RUN PROGRAM [libtest's arguments]      RUN: the folder of the servers (PGCACHE_RUN)
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 5.0
CROWDED = 4.0
SLOWEST = 10
# Run more tests at a time than cores, because a test mostly waits for a server, a lock or a commit.
EACH = 2
THREADS = EACH * len(os.sched_getaffinity(0))


def tagged():
    lines = (ROOT / "t/slow").read_text().splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")}


def crowding():
    return max(float(EACH), os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def events(words):
    """Yields the program's output line by line: libtest's events as dictionaries, lines that tests print as text."""
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1"}  # libtest reports times only as an unstable feature
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, errors="replace")
    for line in process.stdout:
        try:
            event = json.loads(line) if line.startswith("{") else line
        except ValueError:
            event = line
        yield event if isinstance(event, str) or "type" in event else line
    process.wait()
    if process.returncode not in (0, 101):
        print(f"the program of the tests ended with {process.returncode}")


def run(program, arguments):
    """Runs the program. Returns the seconds of each test, and the output of each failed test."""
    own = [] if "--test-threads" in arguments else ["--test-threads", str(THREADS)]
    seconds, failed, ended = {}, {}, False
    words = [program, *arguments, *own, "-Z", "unstable-options", "--format=json", "--report-time"]
    for event in events(words):
        if isinstance(event, str):
            print(event, end="", flush=True)
        elif event["type"] == "suite":
            ended = event["event"] in ("ok", "failed")
        elif event["type"] == "test" and event["event"] in ("ok", "failed"):
            name = event["name"]
            seconds[name] = event.get("exec_time", 0.0)
            verdict = "ok"
            if event["event"] != "ok":
                verdict, failed[name] = "FAILED", event.get("stdout", "")
            elif name not in tagged() and crowding() <= CROWDED and seconds[name] > BUDGET * crowding():
                verdict = "FAILED"
                failed[name] = f"took {seconds[name]:.1f} s, the budget is {BUDGET:g} s: make it faster, or list it in t/slow\n"
            print(f"test {name} ... {verdict} <{seconds[name]:.2f} s>\n{failed.get(name, '')}", end="", flush=True)
    if not ended:
        failed["the program of the tests"] = "did not come to its end\n"
    return seconds, failed


def wait_for_servers(run):
    """Waits until the tests' servers have ended. A server's folder is removed after the server has stopped and its log
    has been checked."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if not [name for name in os.listdir(run) if name[:1].isdigit()]:
            return
        time.sleep(0.1)
    print("servers of these tests still run")


def left_behind(run):
    for name in ("leftovers", "crashes"):
        file = run / name
        if file.exists():
            yield from (f"{name}: {line}" for line in file.read_text(errors="replace").splitlines())
            file.unlink()


def main():
    run_folder, program, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    for name in ("leftovers", "crashes"):
        (run_folder / name).unlink(missing_ok=True)
    start = time.monotonic()
    seconds, failed = run(program, arguments)
    wait_for_servers(run_folder)
    left = list(left_behind(run_folder))
    if failed:
        print("\nfailures:")
    for name, words in failed.items():
        print(f"\n---- {name}\n{words}", end="")
    if left:
        print("\nwhat tests left on their servers:", *left, sep="\n")
    print(f"\nthe slowest, of {sum(seconds.values()):.0f} s in {time.monotonic() - start:.0f} s, load {os.getloadavg()[0]:.1f}:")
    for name in sorted(seconds, key=seconds.get, reverse=True)[:SLOWEST]:
        print(f"  {seconds[name]:6.2f} s  {name}")
    bad = len(failed) + len(left)
    good = max(0, len(seconds) - len(failed))
    print(f"test result: {'FAILED' if bad else 'ok'}. {good} passed; {bad} failed")
    return 1 if bad else 0


sys.exit(main())
