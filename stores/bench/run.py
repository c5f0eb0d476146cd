"""Compares stores in PHP, Ruby and Java with their frameworks' stock Redis stores on one server; run.sh explains the
output."""

import os
import subprocess
import sys

from spent import best, server_time

REQUESTS, ROUNDS = int(os.environ.get("REQUESTS", 3000)), 7
PROGRAMS = {
    "Laravel": ["php", "stores/php/bench.php"],
    "Symfony": ["php", "stores/php/bench.php"],
    "Rails": ["/usr/bin/ruby", "-W0", "stores/rails/bench.rb"],
    "Spring": ["java", "-cp", os.environ["STORE_CLASSES"], "Bench"],
}


def measure(framework, over, call, postmaster):
    command = [*PROGRAMS[framework], f"{framework}/{over}", call, str(REQUESTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "ready\n", f"{framework} over {over} did not begin"
        before = server_time(postmaster)
        program.stdin.write("\n")
        program.stdin.flush()
        rate, client = map(float, program.stdout.readline().split())
        server = (server_time(postmaster) - before) / REQUESTS * 1e6
        program.stdin.write("\n")
        return rate, client, server


def main(postmaster, *frameworks):
    print("| framework | call | over | requests/s | client CPU | server CPU |\n|---|---|---|---|---|---|")
    for framework in frameworks or PROGRAMS:
        for call in "set", "get":
            runs = {"memory": [], "unlogged": [], "Redis": []}
            for _ in range(ROUNDS):
                for over, figures in runs.items():
                    figures.append(measure(framework, over, call, postmaster))
            base = best(runs["Redis"])
            for over, figures in runs.items():
                rate, client, server = best(figures)
                print(
                    f"| {framework} | {call} | {over} | {rate:,.0f} ({rate / base[0]:.2f}) "
                    f"| {client:.0f} µs ({client / base[1]:.2f}) | {server:.0f} µs ({server / base[2]:.2f}) |"
                )


main(*sys.argv[1:])
