"""Every benchmark in turn; what they need beside this project gets an environment of its own."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.environment import PROJECT, peers_python


def main() -> int:
    """Run all; the exit code is the first that is not 0."""
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
