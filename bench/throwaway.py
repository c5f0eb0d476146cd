"""A throwaway cluster by its name: what a benchmark in Python asks of scripts/cluster.sh."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Cluster:
    def __init__(self, name: str):
        self.name = name

    def run(self, command: str, *words: str, text: str | None = None) -> str:
        words = (ROOT / "scripts/cluster.sh", command, self.name, *words)
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{self.name}: cluster.sh {command} {self.name} failed:\n{done.stderr}")
        return done.stdout

    def sql(self, text: str) -> str:
        return self.run("psql", "-qAt", "-v", "ON_ERROR_STOP=1", text=text).strip()

    def address(self) -> dict[str, str]:
        """PGHOST, PGPORT and so on."""
        lines = self.run("env").replace("export ", "").split()
        return dict(pair.split("=", 1) for pair in lines if "=" in pair)
