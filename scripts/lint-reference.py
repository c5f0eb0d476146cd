#!/usr/bin/env -S python3 -B
"""Guards that docs/reference.md tells every error of src/error.rs, and no other: SQLSTATE, message, and the
hint where there is one. What the catalog knows (functions, views, settings) t/tests/reference.rs holds against it."""

import re
import subprocess
import sys

from rust_source import ROOT, closing

ROW = re.compile(r"^\| ([0-9A-Z]{5}) \| `([^|]*)` \|(.*)\|$", re.M)
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
ARM = re.compile(r"((?:\|?\s*Error::\w+(?:\([^()]*\)|\s*\{[^{}]*\})?\s*)+)=>")
PLACE = re.compile(r"\{[^{}]*\}")


def plain(text: str) -> str:
    """A text of Rust's as it is shown: escapes resolved, what is filled in as an ellipsis."""
    text = re.sub(r"\\\n\s*", "", text).replace('\\"', '"')
    return PLACE.sub("…", text)


def block(source: str, beginning: str) -> str:
    start = source.index("{", source.index(beginning))
    return source[start : closing(source, start)]


def arms(source: str, function: str) -> dict[str, str]:
    """What stands behind each variant's arrow."""
    text = block(source, f"fn {function}(")
    found = list(ARM.finditer(text))
    ends = [arm.start() for arm in found[1:]] + [len(text)]
    behind = {}
    for arm, end in zip(found, ends):
        for variant in re.findall(r"Error::(\w+)", arm.group(1)):
            behind[variant] = text[arm.end() : end]
    return behind


def strings(arms: dict[str, str]) -> dict[str, str]:
    texts = {variant: STRING.search(arm) for variant, arm in arms.items()}
    return {variant: plain(found.group(1)) for variant, found in texts.items() if found}


def sqlstates() -> dict[str, str]:
    """Postgres' own header knows the five characters of each name."""
    config = subprocess.run([ROOT / "scripts/pg-config.sh"], capture_output=True, text=True, check=True).stdout.strip()
    folder = subprocess.run([config, "--includedir-server"], capture_output=True, text=True, check=True).stdout.strip()
    with open(f"{folder}/utils/errcodes.h") as header:
        defined = re.findall(r"#define (ERRCODE_\w+) MAKE_SQLSTATE\(([^)]*)\)", header.read())
    return {name: "".join(re.findall(r"'(.)'", letters)) for name, letters in defined}


def errors_in_code() -> dict[tuple[str, str], str]:
    """(SQLSTATE, message) of each variant, and its hint."""
    source = (ROOT / "src/error.rs").read_text()
    states = sqlstates()
    codes = {variant: re.search(r"ERRCODE_\w+", arm).group() for variant, arm in arms(source, "code").items()}
    messages, hints = strings(arms(source, "message")), strings(arms(source, "hint"))
    variants = re.findall(r"^    (\w+)(?:\(|,| \{)", block(source, "pub enum Error"), re.M)
    return {(states[codes[variant]], messages[variant]): hints.get(variant, "") for variant in variants}


def errors_on_page() -> dict[tuple[str, str], str]:
    page = (ROOT / "docs/reference.md").read_text()
    return {(state, message): rest for state, message, rest in ROW.findall(page)}


def findings():
    code, page = errors_in_code(), errors_on_page()
    for error in sorted(code.keys() - page.keys()):
        yield f"src/error.rs has {error}, docs/reference.md does not"
    for error in sorted(page.keys() - code.keys()):
        yield f"docs/reference.md has {error}, src/error.rs does not"
    for error in sorted(code.keys() & page.keys()):
        if code[error] not in page[error]:
            yield f"docs/reference.md: {error} lacks its hint: {code[error]}"


def main() -> int:
    found = list(findings())
    print("\n".join(found) or f"reference: {len(errors_on_page())} errors are those of src/error.rs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
