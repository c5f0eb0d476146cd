"""Where a rival's program is: the machine's own, or that of a newer suite, unpacked beside the system."""

from functools import cache
from pathlib import Path

from .command import output
from .plan import ROOT


@cache
def folder(suite):
    return Path(output([ROOT / "scripts/rivals.sh", suite]).strip())


def path(name, suite=""):
    return str(folder(suite) / "run" / name) if suite else name


def version(name, suite=""):
    """The number alone: each of them prints it in its own way."""
    words = output([path(name, suite), "--version"]).replace("v=", "").split()
    return next(word for word in words if word[0].isdigit())
