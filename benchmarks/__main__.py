"""Runs every benchmark in turn; their other libraries are in an environment of their own."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.environment import PROJECT, peers_python


def main() -> int:
    """Run all benchmarks; return the first exit code that is not 0, otherwise 0."""
    codes = [
        subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, check=False).returncode
        for command in (
            ["benchmarks.bootstrap", "--dlt-python", peers_python("bench")],
            ["benchmarks.incremental"],
            ["benchmarks.fleet"],
            ["benchmarks.cold_start"],
            ["benchmarks.mysql_readers", "--kind", "mariadb"],
            ["benchmarks.mysql_readers", "--kind", "mysql"],
        )
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
