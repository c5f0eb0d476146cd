#!/usr/bin/env -S python3 -B
"""Finds phrases that make readers stop, in everything that a user reads and in the comments of the sources.

Pages, messages, settings and the newest SQL scripts must contain none of them. In the comments of the sources each
phrase is counted; scripts/prose-counts keeps the numbers, and a number may only decrease.

Usage: lint-prose.py            checks; prints a line for each finding and fails on one
       lint-prose.py --lower    writes the numbers that have fallen to scripts/prose-counts
       lint-prose.py --show     prints the findings in the sources, too
       lint-prose.py FILE...    prints the findings in these files, sources included, and fails on one

Each pattern lists sentences in which it must find something and sentences that it must accept. Each kind of file has a
test text with a planted phrase. Every run checks all of them first.
"""

import ast
import io
import os
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / "scripts/prose-counts"
SOURCES = "bench binaries crates demo docker examples scripts specs sql src stores t".split()
NOT_OURS = re.compile(r"bench/results/")
BUILT = {".git", "build", "node_modules", "target", "vendor", "venv"}


class Pattern(NamedTuple):
    """A phrase, and the words to use instead. If it `starts` a sentence, it is allowed in headings."""

    name: str
    regex: str
    say: str
    finds: list[str]
    passes: list[str]
    starts: bool = False

    def compiled(self):
        return re.compile(BEGIN + self.regex) if self.starts else re.compile(self.regex, re.I)


BEGIN = r"(?:\A|(?<=[.!?:;]\s)|(?<=[.!?]['\")*]\s))[\s\"'(*_>]*"
VERB = r"(?:is|are|was|were|has|had|does|did|can|may|must|will|would|comes?|goes|stands?|happens|makes?|gets?|holds?)"
PATTERNS = [
    Pattern(
        "what-subject",
        rf"What\s+(?:the|a|an|it|they|we|this|that|one|no|{VERB}|[a-z`]+s)\b(?![^.?]*\?)",
        "name the thing: 'the rows that ...', 'the cost of ...'",
        ["What is read is current.", "It ends. What the loader gave is stored.", "**What it costs:** three triggers."],
        ["What does a restart do?", "Whatever it holds.", "It says what it is.", "What should I watch?"],
        starts=True,
    ),
    Pattern(
        "who-subject",
        r"(?:Who|Whom|Whoever|Whomever)\s+(?![^.?]*\?)",
        "name the role, session, client or caller",
        ["Who waits goes on.", "Done. Whoever writes wins."],
        ["Who may read this?", "The owner, who may."],
        starts=True,
    ),
    Pattern(
        "who-without-noun",
        r"\bwho(?:m)?ever\b|\b(?:of|to|by|for|with|from|than|and|or|but|as|tells?|told|asks?|knows?|sees?|says?|where"
        r"|so|if|that|when|while|also|only)\s+who\s+(?!(?:it|he|they|you)\s+(?:is|are)\b)|[;:(]\s*who\s+",
        "name the role, session, client or caller",
        ["as seen by who reads", "the right of whoever waits", "it wakes all; who waits begins again"],
        ["the owner, who may", "a client who reads", "those who may read it", "to say who they are"],
    ),
    Pattern(
        "is-told",
        r"\b(?:is|are|was|were|be|been|being)\s+(?:\w+ly\s+|not\s+|never\s+|also\s+|then\s+)?told\b(?!\s+apart)",
        "notified, returned, given",
        ["a client is told", "they are then told of it", "which cannot be told"],
        ["the two are told apart", "it told us"],
    ),
    Pattern(
        "somebody",
        r"\b(?:some|any|no)body\b",
        "name the role, session or caller; 'no session', 'another role'",
        ["nobody reads it", "Somebody else's row", "by anybody's name"],
        ["the body of a function"],
    ),
    Pattern(
        "others-code",
        r"\bothers'\s+\w+|\b(?:code|tables?|software|transactions?|sessions?|caches?|keys?|rows?|entries|locks?)"
        r"\s+of\s+others\b",
        "user-defined triggers and functions; other sessions' rows",
        ["runs others' code", "code of others runs", "the tables\nof others"],
        ["that of other sessions", "and others"],
    ),
    Pattern(
        "has-not-got",
        r"\b(?:has|have|had)(?:\s+not|n't)?\s+(?:not\s+)?got\b|\b(?:has|have)\s+not\s*(?=[.,;:)]|\Z)",
        "lacks, does not have",
        ["the table has not got it", "a column that it has not."],
        ["it has not been read", "has gotten"],
    ),
    Pattern(
        "is-there",
        r"(?<!how )\b(?:is|are|was|were|be)\s+(?:not\s+|already\s+|still\s+|never\s+|always\s+)?there"
        r"(?=\s*(?:[.,;:)?]|\Z"
        r"|\b(?:and|but|or|already|still|again|too|that|when|while|if|until|before|after|yet|now|at)\b))",
        "exists",
        ["the key is there", "what is there already", "a row that is not there, and"],
        ["is there a way", "are there any rows"],
    ),
    Pattern(
        "hears",
        r"\bhears?\b|\bheard\b",
        "receives, is notified of",
        ["a client hears of it", "a reply it has heard"],
        ["hearing"],
    ),
    Pattern(
        "goes-on",
        r"\b(?:go|goes|went|gone)\s+on\b(?!\s+(?:a|an|the|each|every|with\s+one)\b)|\bgoing\s+on\b",
        "continues",
        ["the server goes on without", "it went on."],
        ["the lock goes on the row"],
    ),
    Pattern(
        "that-which",
        r"\b(?:that|those)\s+which\b",
        "name the thing",
        ["after that which was read"],
        ["the one which was read", "that, which"],
    ),
    Pattern(
        "is-none",
        r"\b(?:that|which|it|they)\s+(?:is|are)\s+none\b(?!\s+of)",
        "is not a ..., are not ...",
        ["names that are none", "JSON which is none"],
        ["which is none of the words"],
    ),
]
REGEXES = [(pattern, pattern.compiled()) for pattern in PATTERNS]

# (file, words of the sentence): the reason to keep them. An exception that no sentence needs is a finding, too.
EXCEPTIONS: dict[tuple[str, str], str] = {}


class Block(NamedTuple):
    """A unit of text that is searched as a whole: a paragraph, a cell, a comment or a quoted text."""

    line: int
    text: str
    heading: bool = False


class Finding(NamedTuple):
    path: str
    line: int
    pattern: Pattern
    words: str


def find(path, blocks):
    for block in blocks:
        text = re.sub(r"`[^`]*`", lambda code: "`" + "x" * (len(code[0]) - 2) + "`", block.text)
        for pattern, regex in REGEXES:
            for match in () if block.heading and pattern.starts else regex.finditer(text):
                at = match.end() - len(match[0].lstrip(" \n\"'(*_>"))
                words = " ".join(block.text[max(at - 20, 0) : match.end() + 30].split())
                yield Finding(path, block.line + block.text.count("\n", 0, at), pattern, words)


def joined(lines):
    """Joins texts on consecutive lines to blocks. An empty text ends a block."""
    block = []
    for number, text in [*lines, (-1, "")]:
        if block and (number != block[-1][0] + 1 or not text.strip()):
            yield Block(block[0][0], "\n".join(text for _, text in block))
            block = []
        if text.strip():
            block.append((number, text))


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def markdown(text):
    """Yields paragraphs, list items and cells, without code and without the targets of links."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", blank, text, flags=re.M | re.S)
    text = re.sub(r"(?<=\])\([^)\s]*\)", "", text)
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        bullet = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        if line.startswith("|"):
            yield from (Block(number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line))
        elif line.startswith("#"):
            yield Block(number, line.strip("# "), heading=True)
        elif bullet:
            yield from joined(lines)
            lines = [(number, line[bullet.end() :])]
            continue
        else:
            lines.append((number, line))
            continue
        yield from joined(lines)
        lines = []
    yield from joined(lines)


RUST = re.compile(
    r'//[/!]?(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|\bb?r(?P<fence>#*)"(?P<raw>.*?)"(?P=fence)'
    r"""|"(?P<text>(?:\\.|[^"\\])*)"|'(?:\\[^']+|[^'\\\n])'""",
    re.S,
)
SQL = re.compile(r"--(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|'(?P<text>(?:[^']|'')*)'", re.S)


def scanned(text, tokens):
    """Returns the comments and the quoted texts of a file."""
    lines, comments, texts = [], [], []
    for match in tokens.finditer(text):
        number, groups = line_of(text, match.start()), match.groupdict()
        if groups["line"] is not None:
            lines.append((number, groups["line"]))
        elif groups["block"] is not None:
            comments.append(Block(number, groups["block"]))
        elif (said := groups.get("raw") or groups["text"]) is not None and " " in said:
            texts.append(Block(number, re.sub(r"\\\n\s*", lambda gap: "\n" * gap[0].count("\n"), said)))
    return [*joined(lines), *comments], texts


def python(text):
    """Yields comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from joined((token.start[0], token.string[1:]) for token in tokens if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield Block(node.body[0].lineno, ast.get_docstring(node, clean=False))


def marked(text, comment):
    """Yields comments that end with their line."""
    lines = enumerate(text.split("\n"), 1)
    found = ((number, re.search(comment, line)) for number, line in lines)
    return joined((number, match[1]) for number, match in found if match)


def slashes(text):
    return marked(text, r"(?:^|(?<=\s))(?://|/?\*\*?(?=\s))(.*)")


def hashes(text):
    return marked(text, r"(?:^|(?<=\s))#(?!!)(.*)")


COMMENTS = {
    ".md": markdown,
    ".rs": lambda text: scanned(text, RUST)[0],
    ".sql": lambda text: scanned(text, SQL)[0],
    ".py": python,
    **dict.fromkeys([".c", ".go", ".java", ".js", ".mjs", ".php", ".ts"], slashes),
    **dict.fromkeys([".rb", ".sh", ".spec", ".toml", ".yaml", ".yml", "Dockerfile", "Makefile", "run"], hashes),
}
READ = COMMENTS.keys()


def comments(path, text):
    return COMMENTS.get(path.suffix or path.name, lambda _: ())(text)


def newest():
    """Returns the SQL scripts of the version in development."""
    version = re.search(r"^default_version = '(.*)'", (ROOT / "pgcache.control").read_text(), re.M)[1]
    upgrades = ROOT.glob(f"sql/pgcache--*--{version}.sql")
    return {f"sql/pgcache--{version}.sql", *(str(script.relative_to(ROOT)) for script in upgrades)}


def read_by_users(path, text, scripts):
    """Returns the blocks that must be free of findings, because users read them."""
    name = str(path)
    if name == "CHANGELOG.md":  # sections of older versions stay as they are
        return markdown("\n## ".join(text.split("\n## ")[:2]))
    if path.suffix == ".md":
        return markdown(text)
    if name in scripts:
        return [block for kind in scanned(text, SQL) for block in kind]
    if name.startswith(("src/", "crates/resp/src/")):
        return scanned(text.partition("#[cfg(test)]")[0], RUST)[1]
    return ()


def files():
    """Yields each text file of the checkout. Does not use git, because git refuses a checkout that another user
    owns."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - BUILT)
        for path in (Path(folder, name) for name in sorted(names)):
            inside = path.relative_to(ROOT)
            if {inside.suffix, inside.name} & READ and not NOT_OURS.match(str(inside)):
                yield inside, path.read_text()


def check():
    """Returns the findings in text for users, the findings in the sources, their numbers by pattern, and the unused
    exceptions."""
    scripts, clean, left, used = newest(), [], [], set()
    for path, text in files():
        for finding in find(str(path), read_by_users(path, text, scripts)):
            known = [key for key in EXCEPTIONS if key[0] == finding.path and key[1] in finding.words]
            used.update(known)
            clean += [] if known else [finding]
        old_script = path.match("sql/pgcache--*.sql")
        if path.parts[0] in SOURCES and path.suffix != ".md" and not old_script:
            left += find(str(path), comments(path, text))
    counts = Counter({pattern.name: 0 for pattern in PATTERNS})
    counts.update(finding.pattern.name for finding in left)
    unneeded = [f"{path}: no sentence needs the exception {words!r}" for path, words in EXCEPTIONS.keys() - used]
    return clean, left, counts, unneeded


def kept():
    rows = (line.split() for line in COUNTS.read_text().splitlines() if line and not line.startswith("#"))
    return {pattern: int(number) for pattern, number in rows}


def keep(counts):
    head = "# How often scripts/lint-prose.py finds each phrase in comments of the sources. The numbers only fall.\n"
    COUNTS.write_text(head + "".join(f"{key} {counts[key]}\n" for key in sorted(counts)))


PLANTED = {
    "a.md": "# Who reads\n\nIt ends. What is\nread ends.\n\n| a | nobody `nobody` |\n|---|---|\n- x\n  y hears\n\n"
    "```\nnobody\n```\n",
    "a.rs": "//! Fine.\n\n/// It waits for\n/// whoever writes.\n"
    """fn f() { let q = "nobody // nobody"; g('"'); } // is told\n""",
    "a.sql": "-- Fine.\n--\n-- code of\n-- others\nSELECT 'nobody -- nobody';\n",
    "a.py": '"""Fine.\n\nNobody reads."""\nx = 1  # is told\n',
    "a.sh": "#!/bin/sh\n# Who waits\n# goes on.\n",
    "a.js": "/**\n * nobody\n */\nf(); // is told\n",
}
PLANTED_LINES = {"a.md": [3, 6, 9], "a.rs": [4, 5], "a.sql": [3], "a.py": [3, 4], "a.sh": [2, 3], "a.js": [2, 4]}


def try_itself():
    """Yields each example and each planted text in which the patterns find too little or too much."""
    for pattern, regex in REGEXES:
        yield from (f"{pattern.name} does not find: {text}" for text in pattern.finds if not regex.search(text))
        yield from (f"{pattern.name} finds: {text}" for text in pattern.passes if regex.search(text))
    for name, text in PLANTED.items():
        lines = sorted(finding.line for finding in find(name, comments(Path(name), text)))
        if lines != PLANTED_LINES[name]:
            yield f"in the planted {name} lines {lines} are found"
    texts = {
        "src/a.rs": 'say("Fine. \\\n   Nobody knows"); // nobody\n#[cfg(test)]\nsay("nobody knows");',
        "sql/a.sql": "-- Fine.\nCOMMENT ON x IS 'nobody knows';",
        "CHANGELOG.md": "# C\n\nnobody\n\n## 2\n\n## 1\n\nnobody\n",
    }
    for (name, text), lines in zip(texts.items(), [[2], [2], [3]]):
        found = [finding.line for finding in find(name, read_by_users(Path(name), text, {"sql/a.sql"}))]
        if found != lines:
            yield f"in the planted {name}, as users read it, lines {found} are found"


def main(arguments):
    shown = lambda found: [f"{f.path}:{f.line}: {f.pattern.name}: {f.words}  ({f.pattern.say})" for f in found]
    if wrong := list(try_itself()):
        return wrong
    if arguments and not arguments[0].startswith("--"):
        named, scripts = (Path(name).resolve().relative_to(ROOT) for name in arguments), newest()
        texts = ((path, (ROOT / path).read_text()) for path in named)
        blocks = ((path, {*comments(path, text), *read_by_users(path, text, scripts)}) for path, text in texts)
        return shown(finding for path, found in blocks for finding in find(str(path), sorted(found)))
    clean, left, counts, unneeded = check()
    before = {**counts, **kept()} if COUNTS.exists() else counts
    if "--show" in arguments:
        print("\n".join(shown(left)))
    if "--lower" in arguments:
        keep({key: min(counts[key], before[key]) for key in counts})
    if fell := [f"{key} {before[key]} -> {counts[key]}" for key in sorted(counts) if counts[key] < before[key]]:
        print(f"fewer than kept: {', '.join(fell)}. Run scripts/lint-prose.py --lower, commit scripts/prose-counts.")
    risen = [
        f"comments of the sources have {key} {counts[key]} times, and {before[key]} are kept: --show lists them"
        for key in sorted(counts)
        if counts[key] > before[key]
    ]
    return [*shown(clean), *unneeded, *risen]


if __name__ == "__main__":
    FOUND = main(sys.argv[1:])
    print("\n".join(FOUND) or "prose: nothing found")
    sys.exit(bool(FOUND))
