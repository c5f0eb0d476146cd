#!/usr/bin/env python3
"""Compares the outputs of Postgres' own tests over plain tables and over attached ones, and prints what differs.

What every attached table shows is taken away first: the condition in EXPLAIN and the triggers in psql's \\d. So is the
order of rows, which other plans change. What is left is other plans, and whatever ought not to be there.

Usage: compare.py PLAIN ATTACHED      folders of *.out
"""

import difflib
import re
import sys
from pathlib import Path

LIVE = r"(?:\w+\.)?pgcache\.live\([^()]*\)"


def terms(condition):
    """The conditions that an AND joins, as EXPLAIN writes it: (first AND second)."""
    if not condition.startswith("("):
        return [condition]
    depth, quoted, found, begin = 0, False, [], 1
    for position, character in enumerate(condition):
        quoted ^= character == "'"
        if quoted:
            continue
        depth += (character == "(") - (character == ")")
        if depth == 0 and position + 1 < len(condition):
            return [condition]
        if depth == 1 and condition.startswith(" AND ", position):
            found.append(condition[begin:position])
            begin = position + len(" AND ")
    return found + [condition[begin:-1]] if found else [condition]


def without_condition(line):
    """A line of EXPLAIN without our condition; None where nothing is left of it."""
    label, colon, condition = line.partition(": ")
    left = [term for term in terms(condition) if not re.fullmatch(LIVE, term)]
    if left == terms(condition):
        return line
    if not left:
        return None
    return label + colon + (left[0] if len(left) == 1 else f"({' AND '.join(left)})")


def without_frame(lines):
    """Tables without what depends on their longest line, plans without their number of lines, rows in one order."""
    plan, rows = False, None
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        line = re.sub(r" *\+$", "", line)
        if rows is not None and (not line or re.match(r"\(\d+ rows?\)|[A-Z]\w[\w ]*:", line) or is_ruler(below)):
            yield from sorted(rows)
            rows = None
        if is_ruler(below):
            plan = "PLAN" in line or "explain" in line
            yield line.strip()
        elif is_ruler(line):
            rows = None if plan else []
            yield "-"
        elif rows is not None:
            rows.append(line)
        elif plan and re.fullmatch(r"\(\d+ rows?\)", line):
            plan = False
        else:
            kept = without_condition(line) if plan else line
            if kept is not None:
                yield kept
    yield from sorted(rows or [])


def is_ruler(line):
    return re.fullmatch(r"-+(\+-+)*", line) is not None


def without_triggers(lines):
    """Descriptions of tables without our triggers, and without a heading that has no other left."""
    heading = None
    for line in lines:
        if re.fullmatch(r"(Disabled user t|T)riggers(:| firing .*:)", line):
            heading = line
        elif re.match(r"    pgcache_\w+ (BEFORE|AFTER) ", line):
            pass
        else:
            if heading and line.startswith("    "):
                yield heading
            heading = None
            yield line


def shown(path):
    # Messages name files in the run's own folder, and some tests show oids.
    text = path.read_text(encoding="utf-8", errors="replace").replace(str(path.parent.parent.resolve()), "")
    text = re.sub(r"pg_toast_\d+", "pg_toast_N", text)
    if path.name == "rules.out":
        text = re.sub(r"^ +\d{5} \| r ( *)\| +\d{5}$", " N | r | N", text, flags=re.MULTILINE)
    lines = [line.rstrip() for line in text.splitlines()]
    return list(without_triggers(without_frame(lines)))


def main():
    plain, attached = (Path(folder) for folder in sys.argv[1:])
    names = sorted({path.name for folder in (plain, attached) for path in folder.glob("*.out")})
    for name in names:
        both = [folder / name for folder in (plain, attached)]
        if not all(path.exists() for path in both):
            print(f"{name}: only one run has it")
            continue
        before, after = (shown(path) for path in both)
        changes = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
        if changes:
            print(f"== {name}")
        for line in changes:
            print("@@" if line.startswith("@@") else line)


main()
