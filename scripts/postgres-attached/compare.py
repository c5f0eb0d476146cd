#!/usr/bin/env -S python3 -B
"""Compares the outputs of Postgres' own tests over plain tables and over attached ones, and fails on a difference.

Removes the differences that docs/internals/hiding.md names from both outputs. The remaining lines must be the same, and
so must the rows of each result, in any order. Then it tests itself: it adds a row to each output, removes a row from
each, and fails unless both changes count as differences.

Usage: compare.py PLAIN ATTACHED      folders of *.out
"""

import difflib
import re
import sys
from pathlib import Path
from typing import NamedTuple

COUNT = re.compile(r"\((\d+) rows?\)")
LIVE = r"(?:\w+\.)?pgcache\.live\([^()]*\)"

# Rows about pgcache's triggers in the catalogs and in the output of event triggers. One result of the test `triggers`
# omits the names of the triggers.
OURS = re.compile(r"\bpgcache_(columns|record|record_truncate)\b|^ trgfire3 +\| [AD]$")

# Functions of the tests that report the rows that they get. The order of a scan's conditions decides which rows these
# are.
LEAKS = re.compile(r"\b(f_leak|leak2?|snoop)\(")

# The name of an output (empty for all outputs), a pattern, and the text that replaces it.
TEXTS = [
    # OIDs.
    ("", r"\bpg_toast_\d+", "pg_toast_N"),
    ("rules", r"^ +\d{5} \| r ( *)\| +\d{5}$", " N | r | N"),
    # ALTER TYPE of a key's column is refused.
    (
        "",
        r"^ERROR:  cannot alter type of a column used in a trigger definition\n"
        r"DETAIL:  trigger pgcache_columns on table .*\n",
        "",
    ),
    # Event triggers list pgcache's triggers, and number all objects.
    ("event_trigger", r"^NOTICE:  DROP: .* type=trigger identity=pgcache_.*\n", ""),
    ("event_trigger", r"\| +\d+ \| +\| *$", "| N ||"),
    # Expired rows of onek violate a new unique constraint, so later statements do not find it.
    ("alter_table", r"^(ERROR|HINT):  .*\bonek_unique1_constraint.*\n", ""),
    ("alter_table", r"^DETAIL:  Key \(unique1\)=\(\d+\) is duplicated\.\n", ""),
    # COPY writes the expired rows of onek to a file, and an ordinary table is filled from it.
    ("misc", r"(^ .* \| Mon Jan 01 00:00:00 2001 PST\n){100}\(100 rows\)$", "(0 rows)"),
    # An index scan supports distances that an index-only scan does not.
    (
        "gist",
        r"^ERROR:  lossy distance functions are not supported in index-only scans\n"
        r"|(?<= limit 1;\n)   p   \n-+\n \(0,0\)\n\(1 row\)\n\n",
        "",
    ),
]


class Table(NamedTuple):
    """A result of psql or isolationtester. `count` is the number below the rows; a row may have several lines."""

    header: str
    rows: list[str]
    count: int | None = None

    @property
    def is_plan(self):
        return "PLAN" in self.header or "explain" in self.header or any('"Plan": {' in row for row in self.rows)


def is_header(lines, number):
    """Returns whether a table begins at this line. A frame around a comment is not a table."""
    if number + 1 >= len(lines) or not re.fullmatch(r"-+(\+-+)*", lines[number + 1]):
        return False
    header, ruler = lines[number], lines[number + 1]
    return not header.startswith("--") and header.count("|") == ruler.count("+") and 0 < len(header) <= len(ruler)


def pieces(lines):
    """Splits an output into lines and tables. Tables of \\d have no count."""
    number = 0
    while number < len(lines):
        if not is_header(lines, number):
            yield lines[number]
            number += 1
            continue
        table = Table(lines[number].strip(), [])
        number += 2
        while number < len(lines) and not COUNT.fullmatch(lines[number]):
            ends = not lines[number] or re.match(r"[A-Z]\w[\w ]*:", lines[number]) or is_header(lines, number)
            if ends and not table.is_plan:
                break
            table.rows.append(lines[number])
            number += 1
        if number < len(lines) and (count := COUNT.fullmatch(lines[number])):
            table = table._replace(count=int(count[1]))
            number += 1
        yield table


def of_plan(plan):
    """Returns the number of rows that the plan returned, and the conditions whose order may show hidden rows."""
    yield "plan"
    yield from re.findall(r"actual [^)]*rows=(\S+)", "".join(plan.rows[:1]))
    for row in plan.rows:
        if "Filter: " in row and LEAKS.search(row):
            yield re.sub(rf" AND {LIVE}|{LIVE} AND |[()]", "", row).strip()


def without_padding(row):
    """Removes the padding, because a column is as wide as its longest value."""
    return re.sub(r" *\| *", "|", row.rstrip("+ ")).strip()


def of_table(table):
    """Returns the rows in one order. Of an estimate and the true number beside it, keeps only the true number."""
    header = without_padding(table.header)
    rows = [without_padding(row) for row in table.rows if not OURS.search(row)]
    if header == "estimated|actual":
        rows = [row.partition("|")[2] for row in rows]
    yield header
    yield from sorted(rows)
    if table.count is not None:
        yield f"rows: {table.count - (len(table.rows) - len(rows))}"


def without_triggers(lines):
    """Removes pgcache's triggers from \\d, and the heading if the table has no other triggers."""
    heading = None
    for line in lines:
        if re.fullmatch(r"(Disabled user t|T)riggers(:| firing .*:)", line):
            heading = line
        elif not re.match(r"    pgcache_\w+ (BEFORE|AFTER) ", line):
            if heading and line.startswith("    "):
                yield heading
            heading = None
            yield line


def with_triggers_last(text):
    """Moves BEFORE INSERT triggers to the end of their permutation, because they fire after the wait for a conflicting row
    instead of before it."""
    fired = re.compile(r"^s\d: NOTICE:  trigger: .* when: BEFORE; lev: ROWs; op: INSERT;.*\n", re.MULTILINE)
    permutations = text.split("starting permutation:")
    return "starting permutation:".join(fired.sub("", part) + "".join(fired.findall(part)) for part in permutations)


def compared(name, text):
    """Returns the lines of an output that are compared."""
    for output, pattern, instead in TEXTS:
        if output in ("", name):
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    if name == "eval-plan-qual-trigger":
        text = with_triggers_last(text)
    found = []
    for piece in pieces([line.rstrip() for line in text.splitlines()]):
        if isinstance(piece, str):
            found.append(piece)
        else:
            found += of_plan(piece) if piece.is_plan else of_table(piece)
    return list(without_triggers(found))


def difference(name, plain, attached):
    before, after = compared(name, plain), compared(name, attached)
    return list(difflib.unified_diff(before, after, lineterm="", n=1))[2:] if before != after else []


def planted(text):
    """Returns the output with an additional row in its middle table, and the output without one row of it."""
    lines = text.split("\n")
    places = []
    number = 0
    for piece in pieces([line.rstrip() for line in lines]):
        if isinstance(piece, str):
            number += 1
            continue
        number += 2 + len(piece.rows) + (piece.count is not None)
        if piece.rows and piece.count and not piece.is_plan and not any(OURS.search(row) for row in piece.rows):
            places.append((number - 1, piece.count))
    if not places:
        return
    end, count = places[len(places) // 2]
    yield "\n".join([*lines[:end], lines[end - 1], f"({count + 1} rows)", *lines[end + 1 :]])
    yield "\n".join([*lines[: end - 1], f"({count - 1} rows)", *lines[end + 1 :]])


def outputs(folder):
    # Messages name files in the run's own folder.
    own = str(folder.parent.resolve())
    return {
        path.stem: path.read_text(encoding="utf-8", errors="replace").replace(own, "") for path in folder.glob("*.out")
    }


def main(plain, attached):
    plain, attached = outputs(Path(plain)), outputs(Path(attached))
    assert plain, "there are no outputs"
    failed, tried = False, 0
    for name in sorted(plain | attached):
        if name not in plain or name not in attached:
            failed = True
            print(f"{name}: only one run has it")
            continue
        if found := difference(name, plain[name], attached[name]):
            failed = True
            print(f"== {name}", *found, sep="\n")
        for text in planted(attached[name]):
            tried += 1
            if not difference(name, attached[name], text):
                failed = True
                print(f"{name}: a planted or removed row is not found")
    print(f"{len(plain)} outputs compared; {tried} rows planted or removed")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
