"""Runs a program and takes its output; what fails is said in one sentence."""

import subprocess


class RoundError(Exception):
    """What stops a run, in words for the person who started it."""


def output(words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RoundError(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout
