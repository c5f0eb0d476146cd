# shellcheck shell=bash
# Sourced from the root of the checkout after need.sh charts: finds a $python with matplotlib. Packages put it
# beside the system's own Python, which need not be the first on the PATH.

for python in python3 /usr/bin/python3; do
    "$python" -c 'import matplotlib' 2>/dev/null && break
done
