"""Tests Celery's result backend, with a worker in a separate process. Tasks are passed through files, because Celery's
broker needs lists."""

import os
import subprocess
import sys
import time

from celery import Celery, chord, group
from celery.exceptions import TimeoutError

CHANGED = {}
exec(open("celeryconfig.py").read(), CHANGED)  # the page's blocks
for folder in ("queue", "processed"):
    os.makedirs(folder, exist_ok=True)
transport = {"data_folder_in": "queue", "data_folder_out": "queue", "processed_folder": "processed"}

app = Celery("celery_results", broker="filesystem://", backend=CHANGED["result_backend"])
app.conf.update(broker_transport_options=transport, result_expires=CHANGED["result_expires"],
                task_track_started=True, result_extended=True)
# Chords by a counter, as the page has them.
counting = Celery("counting", broker="filesystem://", backend="celeryconfig.CountedChords+" + CHANGED["result_backend"])
counting.conf.update(broker_transport_options=transport, task_default_queue="counting")


@app.task
def add(x, y):
    return x + y


@app.task
def fail():
    raise ValueError("no")


@app.task
def wait(seconds):
    time.sleep(seconds)
    return "woken"


@counting.task(name="square")
def square(x):
    return x * x


@counting.task(name="total")
def total(numbers):
    return sorted(numbers), sum(numbers)


def results():
    print("get", add.delay(1, 2).get(timeout=30), add.delay("a", "b").get(timeout=30))
    many = [add.delay(n, n) for n in range(20)]
    print("many", [one.get(timeout=30) for one in many], {one.state for one in many})
    print("large", len(add.delay("x" * 100_000, "y").get(timeout=30)))
    failed = fail.delay()
    try:
        failed.get(timeout=30)
    except ValueError as error:
        print("failed", error, failed.state, "fail" in failed.traceback)
    slow = wait.delay(1)
    try:
        slow.get(timeout=0.2)
    except TimeoutError:
        print("too early")
    print("later", slow.get(timeout=30))
    parts = group(add.s(n, 1) for n in range(8)).apply_async()
    print("group", parts.get(timeout=30), parts.successful(), parts.completed_count())
    parts.save()
    again = app.GroupResult.restore(parts.id)
    print("restored", again.get(timeout=30), again.delete(), app.GroupResult.restore(parts.id))
    chain = (add.s(1, 2) | add.s(10) | add.s(100))()
    print("chain", chain.get(timeout=30), chain.parent.get(timeout=30), chain.parent.parent.get(timeout=30))
    last = add.delay(2, 2)
    last.get(timeout=30)
    client = app.backend.client
    left = client.ttl(app.backend.get_key_for_task(last.id))
    print("expires", 0 < left <= CHANGED["result_expires"])
    print("forgotten", last.forget(), app.AsyncResult(last.id).state)
    brief = app.AsyncResult("brief")
    app.backend.store_result("brief", "v", "SUCCESS")
    client.pexpire(app.backend.get_key_for_task("brief"), 20)
    time.sleep(0.05)
    print("expired", brief.state)
    print("chord", chord(square.s(n) for n in range(6))(total.s()).get(timeout=60))


if __name__ == "__main__":
    worker = [sys.executable, "-m", "celery"]
    options = ["worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "WARNING"]
    workers = [subprocess.Popen(worker + ["-A", name] + options, stdout=sys.stderr)
               for name in ("celery_results:app", "celery_results:counting")]
    try:
        results()
    finally:
        for one in workers:
            one.terminate()
        for one in workers:
            one.wait(timeout=30)
