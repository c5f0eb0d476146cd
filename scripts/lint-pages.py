#!/usr/bin/env -S python3 -B
"""Checks the names in pages, workflows and metadata: each link leads to a file and a heading, each `make TARGET` is a
target, each test is listed and has its expected output, CONTRIBUTING.md lists the parts of the tests, each test that
SECURITY.md names exists, the version is the same everywhere, and META.json follows PGXN's meta specification 1.0.0."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PAGES = [page for page in ROOT.rglob("*.md") if not {"build", "target"} & set(page.relative_to(ROOT).parts)]
CALL = re.compile(r"(?:`|\$ |run: |usage: )make ([a-z][a-z-]+)")
SEMANTIC = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[A-Za-z][0-9A-Za-z-]*)?")
REQUIRED = {"name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"}
KEYS = REQUIRED | {"description", "generated_by", "tags", "no_index", "prereqs", "release_status", "resources"}
LICENSES = "agpl_3 apache_2_0 artistic_2 bsd gpl_2 gpl_3 lgpl_2_1 lgpl_3_0 mit postgresql".split()
PHASES = {"configure", "build", "test", "runtime", "develop"}
RELATIONS = {"requires", "recommends", "suggests", "conflicts"}


def prose(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def anchors(page):
    """Returns anchors as GitHub makes them: lower case, hyphens for blanks, no other punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links():
    for page in PAGES:
        for link in re.findall(r"\]\(((?![a-z]+:)[^)\s]+)\)", prose(page)):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or anchor and anchor not in anchors(target):
                yield f"{page.relative_to(ROOT)}: {link} leads nowhere"


def targets():
    database = ["make", "--print-data-base", "--question", "--no-builtin-rules", ":"]
    known = subprocess.run(database, cwd=ROOT, capture_output=True, text=True).stdout
    known = set(re.findall(r"^([a-z][a-z-]*):", known, re.M))
    for file in [*WORKFLOWS, *PAGES, *ROOT.glob("scripts/*.sh")]:
        for target in set(CALL.findall(file.read_text())) - known:
            yield f"{file.relative_to(ROOT)}: make {target} is no target"
    help_text = "\n".join(re.findall(r"@echo '(.*)'", (ROOT / "Makefile").read_text())) + " "
    for target in {target for file in WORKFLOWS for target in CALL.findall(file.read_text())}:
        if not re.search(rf"make {target}\s", help_text):
            yield f"a workflow runs make {target}, and make help does not tell of it"


def tests():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    for name, folder, kind in [("REGRESS", "sql", "sql"), ("ISOLATION", "specs", "spec")]:
        listed = " ".join(re.findall(rf"^{name}(?:_TIER)? *= *(.*)", makefile, re.M)).split()
        listed = {word for word in listed if not word.startswith("$")}
        there = {file.stem for file in (ROOT / folder).glob(f"*.{kind}") if "--" not in file.stem}
        yield from (f"{folder}/{test}.{kind} is not in {name}, or not there" for test in sorted(listed ^ there))
        expected = (ROOT / f"expected/{test}.out" for test in sorted(listed))
        yield from (f"{file.relative_to(ROOT)} is missing" for file in expected if not file.exists())
    declared = set(re.findall(r"^mod (\w+);", (ROOT / "t/tests/main.rs").read_text(), re.M))
    there = {file.stem for file in (ROOT / "t/tests").glob("*.rs")} - {"main"}
    yield from (f"t/tests/{name}.rs is not in main.rs, or not there" for name in sorted(declared ^ there))


def parts():
    """Yields modules of session tests that a part names and that do not exist, and parts that CONTRIBUTING.md omits. It
    must have the quick parts in a table, and the slow parts in the paragraph after the table."""
    rows = [row.split() for row in (ROOT / "scripts/parts").read_text().splitlines() if not row.startswith("#")]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = re.search(r"^\| part \| runs \|\n.*?\n\n", text, re.M | re.S).group(0)
    slow = re.search(r"^The slow parts .*?\n\n", text, re.M | re.S).group(0)
    listed = re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    modules = re.findall(r"(\w+)::", (ROOT / "scripts/parts").read_text() + (ROOT / ".ci/run").read_text())
    yield from (f"t/tests has no {name}.rs, which scripts/parts or .ci/run runs" for name in modules if not (ROOT / f"t/tests/{name}.rs").exists())
    yield from differences("quick", {row[0] for row in rows if row[1] == "quick"}, set(listed))
    yield from differences("slow", {row[0] for row in rows if row[1] == "slow"}, set(re.findall(r"`([a-z-]+)`", slow)))


def differences(kind, there, listed):
    yield from (f"CONTRIBUTING.md and scripts/parts disagree on the {kind} part {name}" for name in sorted(there ^ listed))


def proofs():
    """Yields tests that the last column of SECURITY.md's tables names and that do not exist. `life.rs` and `life.rs:
    a_test, the_start_of_another_...` name tests in t/tests, and a later `a_third_test` is in the same file. A path is
    relative to the checkout."""
    rows = re.findall(r"^\|.*\| ([^|]*`[^|]*) \|$", (ROOT / "SECURITY.md").read_text(), re.M)
    for code in (code for proof in rows for code in re.findall(r"`([^`]+)`", proof)):
        if re.match(r"(crates|scripts|specs|sql)/", code):
            file, tests = ROOT / code, ""
        elif ".rs" in code:
            name, _, tests = code.partition(": ")
            file = ROOT / "t/tests" / name
        elif re.fullmatch(r"[a-z_]+(\.\.\.)?", code):
            tests = code
        else:
            continue
        if not file.exists():
            yield f"SECURITY.md: {code}: there is no {file.relative_to(ROOT)}"
            continue
        for test in filter(None, tests.split(", ")):
            if not re.search(rf"^ *(async )?fn {test.removesuffix('...')}", file.read_text(), re.M):
                yield f"SECURITY.md: {file.relative_to(ROOT)} has no test {test}"


def versions(meta):
    def stated(path, line):
        return re.search(line, (ROOT / path).read_text(), re.M).group(1)

    version = stated("pgcache.control", r"^default_version = '(.*)'")
    places = {
        "Cargo.toml": stated("Cargo.toml", r'^version = "(.*)"'),
        "CHANGELOG.md": stated("CHANGELOG.md", r"^## (\d\S*)"),
        "debian/changelog": stated("debian/changelog", r"^pgcache \((\S+)-\d+\)"),
        "META.json": meta.get("version"),
        "META.json, provides": meta["provides"]["pgcache"]["version"],
    }
    places |= {str(file): stated(file, r'^version = "(.*)"') for file in ROOT.glob("stores/*/pyproject.toml")}
    places["stores/php/composer.json"] = json.loads((ROOT / "stores/php/composer.json").read_text())["version"]
    places["stores/spring/pom.xml"] = stated("stores/spring/pom.xml", r"^  <version>(.*)</version>")
    places["stores/rails"] = stated("stores/rails/activesupport-pgcache.gemspec", r'version = "(.*)"')
    yield from (f"{place} says {said}, pgcache.control {version}" for place, said in places.items() if said != version)
    if not (ROOT / f"sql/pgcache--{version}.sql").exists():
        yield f"sql/pgcache--{version}.sql is missing"


def metadata(meta):
    rules = {
        "required keys": all(meta.get(key) for key in REQUIRED),
        "keys": all(key in KEYS or key.lower().startswith("x_") for key in meta),
        "name": re.fullmatch(r"[^\s/\\\x00-\x1f]{2,}", meta.get("name", "")),
        "version": SEMANTIC.fullmatch(meta.get("version", "")),
        "license": meta.get("license") in LICENSES,
        "release_status": meta.get("release_status", "stable") in ("stable", "testing", "unstable"),
        "meta-spec": meta.get("meta-spec", {}).get("version") == "1.0.0",
        "tags": all(isinstance(tag, str) and 0 < len(tag) < 256 for tag in meta.get("tags", [])),
    }
    for name, extension in meta.get("provides", {}).items():
        rules[f"provides.{name}.version"] = SEMANTIC.fullmatch(extension.get("version", ""))
        rules[f"provides.{name}.file"] = (ROOT / extension.get("file", "none")).is_file()
        rules[f"provides.{name}.docfile"] = (ROOT / extension.get("docfile", "README.md")).is_file()
    for phase, relations in meta.get("prereqs", {}).items():
        rules[f"prereqs.{phase}"] = phase in PHASES and relations.keys() <= RELATIONS
        for name, version in (item for needed in relations.values() for item in needed.items()):
            rules[f"prereqs.{phase}, {name}"] = version == 0 or SEMANTIC.fullmatch(str(version))
    yield from (f"META.json: {rule} is not as PGXN asks" for rule, kept in rules.items() if not kept)


META = json.loads((ROOT / "META.json").read_text())
FOUND = [*links(), *targets(), *tests(), *parts(), *proofs(), *versions(META), *metadata(META)]
print("\n".join(FOUND) or f"links, targets, tests, parts, proofs, version and metadata: nothing found in {len(PAGES)} pages")
sys.exit(bool(FOUND))
