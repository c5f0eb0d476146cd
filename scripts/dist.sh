#!/usr/bin/env bash
# `make dist`: makes a release of the last commit, as a tarball and, for PGXN, as a zip file. The last line of the
# output names the tarball.
. "$(dirname "$0")/head.sh"
git rev-parse --verify -q HEAD >/dev/null || die "a release is made from a git checkout, and this is none."
[ -z "$(git status --porcelain)" ] || say "what is not committed is left out"
version=$(git show HEAD:pgcache.control | sed -n "s/^default_version = '\(.*\)'/\1/p")
name=pgcache-$version
mkdir -p build

# Makes the archive reproducible: the same commit gives the same bytes.
git archive --format=tar --prefix="$name/" HEAD | gzip -9 -n >"build/$name.tar.gz"
git archive --format=zip --prefix="$name/" -o "build/$name.zip" HEAD
for needed in Makefile META.json Cargo.lock pgcache.control "sql/pgcache--$version.sql" LICENSE README.md; do
    tar -tzf "build/$name.tar.gz" "$name/$needed" >/dev/null || die "the release lacks $needed."
done
echo "build/$name.tar.gz"
