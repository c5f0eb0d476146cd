#!/usr/bin/env -S python3 -B
"""Guards that every link between the pages leads somewhere: the file is there, and so is the heading."""

import re
import sys
from pathlib import Path

from rust_source import ROOT, name_of

BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
# What is no part of the checkout.
BUILT = {".git", "build", "target"}


def pages() -> list[Path]:
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name not in BUILT]
    return sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))])


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: small letters, blanks as hyphens, no other punctuation."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def findings_of(page: Path):
    for link in LINK.findall(BLOCK.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{name_of(page)}: there is no {link}"
        elif anchor and anchor not in anchors(target):
            yield f"{name_of(page)}: no heading is meant by {link}"


def main() -> int:
    found = [finding for page in pages() for finding in findings_of(page)]
    print("\n".join(found) or f"links: those of {len(pages())} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
