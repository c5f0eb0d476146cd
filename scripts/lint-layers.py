#!/usr/bin/env -S python3 -B
"""Guards the house plan of the Rust sources: arrows point down only, and unsafe code is gathered.

  api, worker -> cache -> pg -> store      no file names a layer above its own
  unsafe only in src/pg and, in crates/store, in region.rs (raw memory) and access.rs (what callers promise)
  every unsafe block and impl has a SAFETY note in the 4 lines above it, or in the comment right above
"""

import re
import sys

from rust_source import closing, code_only, line_at, name_of, product_files

ABOVE = {"cache": {"api", "worker"}, "pg": {"api", "worker", "cache"}}
UNSAFE_ROOMS = ("src/pg/", "crates/store/src/region.rs", "crates/store/src/access.rs")
LINES_ABOVE = 4


def layer_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[1].removesuffix(".rs") if parts[0] == "src" else None


def names_below_crate(code: str):
    """Every top-level module that the file names: (offset, module)."""
    for found in re.finditer(r"(?:\bcrate::|(?<![\w:])(?:super::)+)(\w+|(?=\{))", code):
        if found.group(1):
            yield found.start(), found.group(1)
            continue
        group = code[found.end() + 1 : closing(code, found.end()) - 1]
        while nested := re.search(r"\{[^{}]*\}", group):
            group = group[: nested.start()] + group[nested.end() :]
        for name in group.split(","):
            if word := re.match(r"\s*(\w+)", name):
                yield found.start(), word.group(1)


def upward_names(path: str, code: str):
    layer = layer_of(path)
    for offset, module in names_below_crate(code):
        if module in ABOVE.get(layer, ()):
            yield line_at(code, offset), f"{layer} must not use {module}: arrows point down only"


def has_safety_note(lines: list[str], index: int) -> bool:
    near = lines[max(0, index - LINES_ABOVE) : index + 1]
    while index > 0 and lines[index - 1].lstrip().startswith(("//", "#[")):
        index -= 1
        near.append(lines[index])
    return any("SAFETY:" in line for line in near)


def unsafe_code(path: str, lines: list[str], code: str):
    for found in re.finditer(r"\bunsafe\b", code):
        number = line_at(code, found.start())
        if not path.startswith(UNSAFE_ROOMS):
            yield number, "unsafe code belongs in src/pg"
        if re.match(r"\s*(\{|impl\b)", code[found.end() :]) and not has_safety_note(lines, number - 1):
            yield number, "unsafe without a SAFETY note above it"


def main() -> int:
    findings = []
    for file in product_files():
        source = file.read_text()
        path, code = name_of(file), code_only(source)
        for number, what in [*upward_names(path, code), *unsafe_code(path, source.split("\n"), code)]:
            findings.append(f"{path}:{number}: {what}")
    print("\n".join(findings) or "layers and unsafe code: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
