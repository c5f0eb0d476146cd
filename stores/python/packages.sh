# shellcheck shell=bash disable=SC2154 # sourced by the check.sh of what is in Python, which stores.sh sources
# Installs what the tests need, with the frameworks' own tests from their source packages (sets `python` and
# `suites`), and builds the packages of the given folders as an application would get them:
#
#      build_packages FOLDER...     sdist and wheel of each, installed to $site
python=$installed/stores-python/venv/bin/python
# shellcheck disable=SC2034 # the callers use it
suites=$installed/stores-python/suites

# shellcheck disable=SC2016 # for the shell that packages_of starts
packages_of stores-python "$ROOT/stores/python/requirements.txt" "$ROOT/stores/python/requirements.txt" -- sh -c '
    set -e
    python3 -m venv --clear venv
    venv/bin/pip install -q --disable-pip-version-check -r requirements.txt
    rm -rf suites sources && mkdir suites sources
    grep -E "^(Django|dogpile.cache|cachelib|Flask-Caching)==" requirements.txt >sources/list
    venv/bin/pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d sources -r sources/list
    for source in sources/*.tar.gz; do
        name=$(basename "$source" | cut -d- -f1)
        mkdir "suites/$name"
        tar -xzf "$source" -C "suites/$name" --strip-components=1 --wildcards "*/tests"
    done
    rm -r sources'

site=$work/$store-site

build_packages() {
    local folder
    rm -rf "$site" "$work/dist"
    for folder in "$@"; do
        # Builds from a copy, because setuptools writes next to the source.
        rm -rf "$work/source"
        cp -r "$folder" "$work/source"
        "$python" -m build --no-isolation --outdir "$work/dist" "$work/source"
    done
    "$python" -m pip install --disable-pip-version-check --no-deps --target "$site" "$work"/dist/*.whl
}
