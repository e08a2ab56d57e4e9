"""Runs benchmarks in turn, and writes their figures to RESULTS.md.

A benchmark that runs again replaces its own section. Peers' libraries are in an environment of
their own.

    python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from typing import Any

import psutil

from benchmarks.environment import PROJECT, peers_python

RESULTS = PROJECT / "RESULTS.md"
HEAD = """# Results of the benchmarks

`make bench` writes this file, a section for each benchmark that has run. Each benchmark compares
what its sides wrote before a figure counts.
Ratios are of sides that took turns in one run; CONTRIBUTING.md explains the gates.
"""
COMMANDS: dict[str, list[str]] = {
    "bootstrap": ["benchmarks.bootstrap"],
    "incremental": [
        *("benchmarks.incremental", "--tables", "50"),
        *("--events", "400000", "--rows", "20000", "--rounds", "5"),
    ],
    "fleet": ["benchmarks.fleet"],
    "many_tables": ["benchmarks.many_tables"],
    "cold_start": ["benchmarks.cold_start"],
    "commit_cost": ["benchmarks.commit_cost"],
    "thousand_commits": [
        *("benchmarks.commit_cost", "--commits", "1000"),
        *("--rows", "1000000", "--no-stock"),
    ],
    "freshness": ["benchmarks.freshness"],
    "isolation": ["benchmarks.isolation"],
    "endurance": ["benchmarks.endurance"],
    "capture": ["benchmarks.capture"],
    "mariadb_capture": ["benchmarks.capture", "--kind", "mariadb", "--sides", "as shipped"],
    "scrape": ["benchmarks.scrape"],
    "mariadb_readers": ["benchmarks.mysql_readers", "--kind", "mariadb"],
    "mysql_readers": ["benchmarks.mysql_readers", "--kind", "mysql"],
}


def main() -> int:
    """Run the benchmarks that are named, or all; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(COMMANDS))
    names = parser.parse_args().names or list(COMMANDS)
    if unknown := set(names) - set(COMMANDS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    codes = [run(name) for name in names]
    return next((code for code in codes if code), 0)


def run(name: str) -> int:
    """Run one benchmark, and write its section; return its exit code."""
    command = list(COMMANDS[name])
    if name == "bootstrap":
        command += ["--dlt-python", peers_python("bench")]
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", *command], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if (figures := figures_of(lines)) is not None:
        known = RESULTS.read_text() if RESULTS.exists() else HEAD
        RESULTS.write_text(with_section(known, name, section(command, figures)))
    return process.returncode


def figures_of(lines: list[str]) -> Any:
    """Return the last JSON document that a benchmark printed; None if it printed none."""
    starts = [place for place, line in enumerate(lines) if line.startswith("{")]
    if not starts:
        return None
    return json.JSONDecoder().raw_decode("".join(lines[starts[-1] :]))[0]


def section(command: list[str], figures: Any) -> str:
    """Return the text of a section: the command, where it ran, and its figures."""
    commit = git("rev-parse", "--short", "HEAD")
    if git("status", "--porcelain", "--", ".", f":!{RESULTS.name}"):
        commit += " with changes"
    shown = [part for part in command if not part.startswith("/")]
    memory = psutil.virtual_memory().total / 2**30
    where = f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}"
    run_at = f"{datetime.now(timezone.utc):%Y-%m-%d}, commit {commit}, {where}"
    document = json.dumps(figures, indent=2)
    return f"`python -m {shlex.join(shown)}` on {run_at}\n\n```json\n{document}\n```\n"


def git(*arguments: str) -> str:
    """Return the output of a git command in the project."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def with_section(text: str, name: str, new: str) -> str:
    """Return the results with a benchmark's section replaced, or added at the end."""
    head, *rest = re.split(r"^## (\w+)\n\n", text, flags=re.MULTILINE)
    sections = {title: body.strip() for title, body in zip(rest[::2], rest[1::2], strict=True)}
    sections[name] = new.strip()
    parts = [head.strip(), *(f"## {title}\n\n{body}" for title, body in sections.items())]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
