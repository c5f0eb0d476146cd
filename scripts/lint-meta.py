#!/usr/bin/env -S python3 -B
"""Guards that one version stands everywhere, and that META.json says what PGXN's meta specification 1.0.0
asks for: required keys, their types, versions in semantic form, files that exist."""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[A-Za-z][0-9A-Za-z-]*)?")
TERM = re.compile(r"[^\s/\\\x00-\x1f]{2,}")
LICENSES = {"agpl_3", "apache_2_0", "artistic_2", "bsd", "gpl_2", "gpl_3", "lgpl_2_1", "lgpl_3_0", "mit", "postgresql"}
PHASES = {"configure", "build", "test", "runtime", "develop"}
RELATIONS = {"requires", "recommends", "suggests", "conflicts"}
KEYS = {
    "name", "version", "abstract", "maintainer", "license", "provides", "meta-spec", "description",
    "generated_by", "tags", "no_index", "prereqs", "release_status", "resources",
}  # fmt: skip
REQUIRED = ("name", "version", "abstract", "maintainer", "license", "provides", "meta-spec")


def first(pattern, path):
    found = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    return found.group(1) if found else None


def version_faults(meta):
    version = first(r"^default_version = '(.*)'", "pgcache.control")
    places = {
        "Cargo.toml": first(r'^version = "(.*)"', "Cargo.toml"),
        "CHANGELOG.md": first(r"^## (\d\S*)", "CHANGELOG.md"),
        "META.json": meta.get("version"),
        "META.json, provides": meta.get("provides", {}).get("pgcache", {}).get("version"),
    }
    for place, stated in places.items():
        if stated != version:
            yield f"{place} says version {stated}, pgcache.control {version}"
    if not (ROOT / f"sql/pgcache--{version}.sql").exists():
        yield f"sql/pgcache--{version}.sql is missing"


def provides_faults(provides):
    if not isinstance(provides, dict) or not provides:
        yield "provides names no extension"
        return
    for name, extension in provides.items():
        for key in ("file", "version"):
            if not extension.get(key):
                yield f"provides.{name} has no {key}"
        if not SEMANTIC.fullmatch(extension.get("version", "")):
            yield f"provides.{name}.version is no semantic version"
        for key in ("file", "docfile"):
            if key in extension and not (ROOT / extension[key]).is_file():
                yield f"provides.{name}.{key}: there is no {extension[key]}"


def prereq_faults(prereqs):
    for phase, relations in prereqs.items():
        if phase not in PHASES:
            yield f"prereqs has no phase {phase}"
        for relation, versions in relations.items():
            if relation not in RELATIONS:
                yield f"prereqs.{phase} has no relation {relation}"
            for name, version in versions.items():
                if version != 0 and not SEMANTIC.fullmatch(str(version)):
                    yield f"prereqs.{phase}.{relation}.{name}: {version} is no semantic version"


def meta_faults(meta):
    for key in REQUIRED:
        if not meta.get(key):
            yield f"{key} is missing"
    for key in meta:
        if key not in KEYS and not key.lower().startswith("x_"):
            yield f"{key} is no key of the specification"
    if not TERM.fullmatch(meta.get("name", "")):
        yield "name is no term"
    if not SEMANTIC.fullmatch(meta.get("version", "")):
        yield "version is no semantic version"
    if meta.get("license") not in LICENSES:
        yield f"license {meta.get('license')} is none of the known ones"
    if meta.get("release_status", "stable") not in {"stable", "testing", "unstable"}:
        yield "release_status is none of stable, testing, unstable"
    if meta.get("meta-spec", {}).get("version") != "1.0.0":
        yield "meta-spec.version is not 1.0.0"
    if not all(isinstance(tag, str) and 0 < len(tag) <= 255 for tag in meta.get("tags", [])):
        yield "tags holds what is no tag"
    yield from provides_faults(meta.get("provides"))
    yield from prereq_faults(meta.get("prereqs", {}))


def main():
    meta = json.loads((ROOT / "META.json").read_text())
    faults = [*version_faults(meta), *(f"META.json: {fault}" for fault in meta_faults(meta))]
    print("\n".join(faults) or "one version everywhere, and META.json is valid")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
