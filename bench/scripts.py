"""The SQL statements of the benchmarks: each is a file of bench/pgbench. pgbench runs the file, the driver sends its
SQL."""

import re

from . import key_distribution as kd
from .base import ROOT

FOLDER = ROOT / "bench/pgbench"
SETUP = FOLDER / "setup.sql"
KEY, VALUE = f"'{kd.PREFIX}' || :n", f"'{kd.value(37)}'"
UNIT = 1_000_000  # entries at :scale 1


def names():
    return sorted(file.stem for file in FOLDER.glob("*.sql") if file != SETUP)


def script(name, around="{}"):
    """Returns the file with the value as a parameter, as the driver sends it. `around` wraps the statement in another
    statement."""
    text = (FOLDER / f"{name}.sql").read_text()
    for sql in statements(name):
        text = text.replace(f"{sql};", f"{around.format(sql)};")
    return text.replace(VALUE, ":value")


def statements(name):
    """Lists the statements of a file, except the statement that a session sends only once."""
    text = re.sub(r"^(--|\\|SET ).*\n", "", (FOLDER / f"{name}.sql").read_text(), flags=re.MULTILINE)
    return [sql.strip() for sql in text.split(";") if sql.strip()]


def statement(name, key="$1", value="$2", table=None):
    """Returns the only statement of a file, with another key, value and table."""
    (sql,) = statements(name)
    sql = sql.replace(KEY, key).replace(VALUE, value)
    return re.sub(r"bench\.\w+", table, sql) if table else sql


def scale(entries):
    return entries / UNIT
