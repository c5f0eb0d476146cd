#!/usr/bin/env -S python3 -B
"""Guards the rule that an error is an SQLSTATE: outside tests nothing may panic on purpose, and
nothing that was left behind while writing stays."""

import re
import sys

from rust_source import code_only, line_at, name_of, product_files, without_tests

FORBIDDEN = re.compile(
    r"\.(?P<method>unwrap|expect|unwrap_err|expect_err|unwrap_unchecked)\s*\("
    r"|\b(?P<macro>panic|todo|unimplemented|unreachable|dbg|println|eprintln)!"
)


def main() -> int:
    findings = []
    for file in product_files():
        code = without_tests(code_only(file.read_text()))
        for found in FORBIDDEN.finditer(code):
            word = found.group("method") or found.group("macro") + "!"
            findings.append(f"{name_of(file)}:{line_at(code, found.start())}: {word} outside tests")
    print("\n".join(findings) or "panics: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
