#!/usr/bin/env -S python3 -B
"""No circle of files in a crate under crates/: a file imports only what can be understood without it.

Tests inside a file may name the crate's test harness; they are not read.
"""

import re
import sys
from pathlib import Path

from rust_source import ROOT, code_only, closing, without_tests

USE = re.compile(r"\b(crate|super)((?:::\w+)*)(::\{)?")


def members(code: str, opening: int) -> list[str]:
    """The first names of the members of a braced import."""
    group = code[opening + 1 : closing(code, opening) - 1]
    while nested := re.search(r"\{[^{}]*\}", group):
        group = group[: nested.start()] + group[nested.end() :]
    return re.findall(r"(?:^|,)\s*((?:\w+::)*\w+)", group)


def imported(code: str, module: tuple[str, ...]):
    """Every path that the file names, from the crate's root."""
    for found in USE.finditer(code):
        root = () if found[1] == "crate" else module[:-1]
        path = root + tuple(found[2].split("::")[1:])
        if found[3]:
            yield from (path + tuple(name.split("::")) for name in members(code, found.end() - 1))
        else:
            yield path


def file_of(path: tuple[str, ...], files: dict) -> tuple[str, ...] | None:
    """The file that defines a path: the longest part of it that is one."""
    return next((path[:end] for end in range(len(path), 0, -1) if path[:end] in files), None)


def arrows(crate: Path) -> dict[tuple[str, ...], set]:
    """For each file of the crate, the files it imports. A mod.rs and lib.rs only list others."""
    files = {}
    for file in crate.glob("src/**/*.rs"):
        module = file.relative_to(crate / "src").with_suffix("").parts
        if module[-1] not in ("lib", "mod"):
            files[module] = without_tests(code_only(file.read_text()))
    return {
        module: {to for path in imported(code, module) if (to := file_of(path, files)) and to != module}
        for module, code in files.items()
    }


def circle(graph: dict) -> list[str]:
    """The files that are left when files without imports are taken away again and again, and then those
    that nobody imports."""
    left = dict(graph)
    for ends in (lambda file: not left[file] & left.keys(), lambda file: all(file not in to for to in left.values())):
        while taken := [file for file in left if ends(file)]:
            for file in taken:
                del left[file]
    return sorted("/".join(file) for file in left)


def main() -> int:
    findings = []
    for crate in sorted(path.parent for path in ROOT.glob("crates/*/Cargo.toml")):
        if files := circle(arrows(crate)):
            findings.append(f"{crate.relative_to(ROOT)}: files import each other in a circle: {', '.join(files)}")
    print("\n".join(findings) or "circles of files in crates/: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
