#!/usr/bin/env python3
"""Makes a copy of the sources with mutants that `pgcache.fault` switches on, one at a time.

The mutants are drawn by a seed from those that cargo-mutants finds in the folders below. Each mutated function contains
both bodies and a switch, so that all mutants need only one build. A mutant that does not compile is replaced by another
one.

Usage: mutants.py SEED COUNT FOLDER CHECK...    CHECK is the command that compiles FOLDER, with messages in JSON.
Prints a line for each mutant: its name, its position, the replacement, and the test modules that cover its file.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys

# The sources of mutants, and the modules of t/tests that must find them, most likely first.
MODULES = {
    "src/cache/commit/invalidated_keys.rs": "resp_tracking_tables resp_tracking_tables_storm",
    "src/cache/commit/notify.rs": "watch coherence_writer",
    "src/cache/commit/publish.rs": "resp_publish prepared",
    "src/cache/commit/setup.rs": "messages",
    "src/cache/commit/prepare.rs": "prepared prepared_restart coherence_limits",
    "src/cache/commit/changes.rs": "coherence_statements coherence_windows coherence_limits faults prepared "
    "fetch_windows coherence_writer resp_tracking_tables",
    "src/cache/commit": "coherence_statements coherence_windows coherence_limits prepared fetch_windows oid_reuse "
    "coherence_commit coherence_writer resp_tracking_tables",
    "src/cache/lease/unverified_after_restart.rs": "prepared_restart prepared fetch standby",
    "src/cache/lease/undo_marks.rs": "prepared prepared_restart coherence_limits resp_tracking_tables",
    "src/cache/lease": "leases fetch fetch_windows fetch_commit fetch_locks fetch_truth clock prepared",
    "src/cache/open": "depend privilege_matrix locks_and_rights rights_taken_away fetch_truth last_moment distributed",
    "src/cache/table/copies.rs": "coherence_windows coherence_statements security hostile_role resp_tracking_tables",
    "src/cache/table/verify.rs": "coherence_statements",
    "src/cache/table/replace_expired.rs": "hidden attached_hidden partitioned partition_locks",
    "src/cache/table/versions.rs": "table_path depend visibility fetch_truth",
    "src/cache/table": "differential resp_differential table_path expiry attached depend privilege_matrix visibility",
}
FOLDERS = ["src/cache/commit", "src/cache/lease", "src/cache/open", "src/cache/table"]
FAULTS = pathlib.Path("src/pg/session/fault.rs")
SWITCH = "crate::pg::session::fault::on(crate::pg::session::fault::Fault::{})"

# Mutants that change nothing observable, as "file: function: replacement", and why.
EQUIVALENT = {
    "src/cache/commit/ledger.rs: Transaction::note_key: ==": "the whole cache counts as changed one key earlier",
}


def found():
    command = ["cargo", "mutants", "--list", "--json", "--package", "pgcache"]
    for folder in FOLDERS:
        command += ["--file", f"{folder}/**/*.rs"]
    mutants = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    named = [mutant for mutant in mutants if mutant.get("function") and key(mutant) not in EQUIVALENT and not is_fault(mutant)]
    return sorted(named, key=lambda mutant: (mutant["file"], place(mutant["span"]["start"]), mutant["replacement"]))


def is_fault(mutant):
    """Returns whether the mutant changes code that runs only under a deliberate fault."""
    span = mutant["span"]
    lines = pathlib.Path(mutant["file"]).read_text().splitlines()[span["start"]["line"] - 1 : span["end"]["line"]]
    return mutant["genre"] != "FnValue" and any("ault::" in line for line in lines)


def key(mutant):
    return f"{mutant['file']}: {mutant['function']['function_name']}: {mutant['replacement']}"


def place(position):
    return (position["line"], position["column"])


def offset(lines, position):
    """Returns the offset of a position whose line and column count from 1. A column counts characters."""
    return sum(len(line) for line in lines[: position["line"] - 1]) + position["column"] - 1


def body_of(text):
    """Returns the offset at which a function's body begins: the brace that the last brace of the text closes."""
    body, opening, at = 0, [], 0
    while at < len(text):
        if text.startswith("//", at):
            at = text.index("\n", at)
        elif text[at] == '"':
            raw = text[at - 1] == "r"
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" and not raw else 1
        elif text[at] == "'" and text[at + 2 : at + 3] == "'":
            at += 2
        elif text.startswith("'\\", at):
            at = text.index("'", at + 3)
        elif text[at] == "{":
            opening.append(at)
        elif text[at] == "}":
            last = opening.pop()
            body = body if opening else last
        at += 1
    return body


def switched(source, mutant, name):
    """Returns the source with both bodies of the mutant's function."""
    lines = source.splitlines(keepends=True)
    function, span = mutant["function"]["span"], mutant["span"]
    begin, end = offset(lines, function["start"]), offset(lines, function["end"])
    left, right = offset(lines, span["start"]), offset(lines, span["end"])
    body = begin + body_of(source[begin:end])
    if mutant["genre"] == "FnValue":
        changed = "{ " + mutant["replacement"] + " }"
    else:
        changed = source[body:left] + mutant["replacement"] + source[right:end]
    both = "{ if " + SWITCH.format(name) + " " + changed + " else " + source[body:end] + " }"
    return source[:body] + both + source[end:]


def modules(file):
    folders = [file, *map(str, pathlib.PurePath(file).parents)]
    return next(MODULES[folder] for folder in folders if folder in MODULES)


def copy_tree(tree):
    shutil.rmtree(tree, ignore_errors=True)
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
                            "Cargo.toml", "Cargo.lock", "src", "crates", "t"], check=True, capture_output=True, text=True)
    for file in filter(None, files.stdout.split("\0")):
        if pathlib.Path(file).exists():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, tree / file)


def with_faults(source, names):
    """Returns the source with these faults added at the end of its table, in the macro `faults!`."""
    lines = source.splitlines(keepends=True)
    try:
        end = lines.index("}\n", lines.index("faults! {\n"))
    except ValueError:
        sys.exit(f"mutants: {FAULTS} has no table that begins with the line `faults! {{`")
    return "".join(lines[:end] + [f'    {name} => "",\n' for name in names] + lines[end:])


def write(tree, drawn):
    """Changes the functions from the last to the first, so that the positions of the others stay valid."""
    (tree / FAULTS).write_text(with_faults(FAULTS.read_text(), drawn))
    for file in {mutant["file"] for mutant in drawn.values()}:
        text = pathlib.Path(file).read_text()
        here = [(name, mutant) for name, mutant in drawn.items() if mutant["file"] == file]
        for name, mutant in sorted(here, key=lambda one: place(one[1]["function"]["span"]["start"]), reverse=True):
            text = switched(text, mutant, name)
        (tree / file).write_text(text)


def broken(tree, check, drawn):
    """Returns the names of the mutants whose file, and function if known, has a compiler error."""
    done = subprocess.run(check, cwd=tree, capture_output=True, text=True)
    if done.returncode == 0:
        return set()
    guilty = set()
    for line in done.stdout.splitlines():
        message = json.loads(line).get("message") if line.startswith("{") else None
        if not isinstance(message, dict) or message.get("level") != "error":
            continue
        for span in message["spans"]:
            text = pathlib.Path(tree, span["file_name"]).read_text().splitlines()[: span["line_end"]]
            here = [name for name, mutant in drawn.items() if mutant["file"] == span["file_name"]]
            before = [name for line in text for name in here if f"Fault::{name})" in line]
            guilty.update(before[-1:] or here[:1])
    if not guilty:
        sys.exit(done.stderr)
    return guilty


def main():
    seed, count, tree = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    pool = found()
    random.Random(seed).shuffle(pool)
    copy_tree(tree)
    drawn, number = {}, 0
    while True:
        while len(drawn) < count and pool:
            mutant = pool.pop()
            taken = {(other["file"], place(other["function"]["span"]["start"])) for other in drawn.values()}
            if (mutant["file"], place(mutant["function"]["span"]["start"])) not in taken:
                number += 1
                drawn[f"Mutant{number}"] = mutant
        copy_tree(tree)
        write(tree, drawn)
        guilty = broken(tree, sys.argv[4:], drawn)
        if not guilty:
            break
        for name in guilty:
            del drawn[name]
    for name, mutant in drawn.items():
        what = f"{mutant['file']}:{mutant['span']['start']['line']} {mutant['function']['function_name']}: {mutant['replacement']}"
        print("\t".join([name, what, modules(mutant["file"])]))


main()
