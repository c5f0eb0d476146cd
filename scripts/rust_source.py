"""How the lint-*.py scripts read Rust: lines, not a syntax tree."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A comment, a raw string, a string or a character; a lifetime such as 'a is none of them.
_NO_CODE = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)
      | b?"(?:\\.|[^"\\])*"
      | b?'(?:\\[^']+|\\'|[^'\\])'
    """,
    re.S | re.X,
)
_TESTS = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)?\)?\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?mod\s+\w+\s*\{")


def product_files() -> list[Path]:
    """The sources of the extension and of the store; not tests, not the bench, not the model checker."""
    # Only the store's tests and its fuzzer compile its folder `check`.
    store = [file for file in ROOT.glob("crates/store/src/**/*.rs") if file.parent.name != "check"]
    return sorted([*ROOT.glob("src/**/*.rs"), *store])


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def code_only(source: str) -> str:
    """The source with comments and literals blanked out; every line keeps its number."""
    return _NO_CODE.sub(lambda found: _blank(found.group()), source)


def without_tests(code: str) -> str:
    """The blanked source with its test modules blanked out, too."""
    while found := _TESTS.search(code):
        end = closing(code, found.end() - 1)
        code = code[: found.start()] + _blank(code[found.start() : end]) + code[end:]
    return code


def closing(code: str, opening: int) -> int:
    """One past the bracket that closes the one at `opening`."""
    pairs = {"{": "}", "(": ")", "[": "]"}
    opens, closes = code[opening], pairs[code[opening]]
    depth = 0
    for index in range(opening, len(code)):
        depth += (code[index] == opens) - (code[index] == closes)
        if depth == 0:
            return index + 1
    return len(code)


def line_at(code: str, offset: int) -> int:
    return code.count("\n", 0, offset) + 1


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
