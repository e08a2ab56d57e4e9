"""`tributary run` from a cold start: with the archive of Java classes of `warm-up`, and without it.

Cron and schedulers start a process for each run. A third side has the archive and only the JVM's
first compiler (C1), which compiles sooner to slower code. Each round changes ten rows of one table,
or of all tables, waits until the events are in Kafka, and starts the command once, for each side in
turn; the side that goes first changes from round to round. A round before them changes one table
only, and does not count. Before a figure is printed, `verify` compares every table with the source.

    python -m benchmarks.cold_start [--tables 50] [--rounds 5]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import yaml

from benchmarks.environment import on_a_stack
from benchmarks.incremental import wait_for_events
from cdc.config import Config
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.warm_up import warm_up
from schemas.table import TableId
from stack.local import LocalStack

SOURCE = "bench"
ROWS = 1_000
CHANGES = 10
LIMIT_S = 1_800
WITH_ARCHIVE, WITHOUT, C1_ONLY = "with_archive", "without", "with_archive_c1"
SIDES = (WITH_ARCHIVE, WITHOUT, C1_ONLY)
GATE = 0.85
"""The most CPU time of a run of one table, as a fraction of that without the archive."""
GATE_S = 12.0
"""Seconds in which a run of one table, with the archive, must end its first commit."""
DDL = "create table {table} (id bigint primary key, name text not null, price numeric(12,2))"
FILL = "insert into {table} select g, md5(g::text), g * 0.01 from generate_series(1, {rows}) g"
CHANGE = "update {table} set price = price + 1 where id <= {changes}"


@dataclass(frozen=True)
class Start:
    """Figures of one command: seconds to its first commit and to its end, and CPU with its JVM."""

    first_commit: float
    wall: float
    cpu: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=50, help="tables that are followed")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    names = [f"cold_{number:04}" for number in range(arguments.tables)]
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document["lake"] = {"url": (folder / "lake").as_uri()}
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["spark"] = {"master": "local[2]", "driver_memory": "2g"}
    (folder / "tributary.yaml").write_text(yaml.safe_dump(document))
    c1 = with_option(folder, document, "-XX:TieredStopAtLevel=1")
    archive = warm_up(NullProgress()).archive
    starts: dict[tuple[int, str], list[Start]] = {}
    with psycopg.connect(stack.env()["TRIBUTARY_PRIMARY_DSN"], autocommit=True) as source:
        for name in names:
            source.execute(DDL.format(table=name))
            source.execute(FILL.format(table=name, rows=ROWS))
        tables = [f"public.{name}" for name in names]
        subprocess.run(command(folder, "onboard", *tables), check=True, timeout=LIMIT_S)
        for number in range(arguments.rounds + 1):
            first = number % len(SIDES)
            turns = SIDES[first:] + SIDES[:first]
            for active, side in itertools.product((1, len(names)) if number else (1,), turns):
                for name in names[:active]:
                    source.execute(CHANGE.format(table=name, changes=CHANGES))
                arrived(document, names, source)
                with set_aside(archive) if side == WITHOUT else contextlib.nullcontext():
                    start = timed(folder, active, c1 if side == C1_ONLY else folder)
                if number > 0:
                    starts.setdefault((active, side), []).append(start)
            print(f"round {number}: done", flush=True)
    subprocess.run(command(folder, "verify", *tables), check=True, timeout=LIMIT_S)
    return report(starts)


def with_option(folder: Path, document: Any, option: str) -> Path:
    """Write the configuration with one more option of the JVM into a folder; return the folder."""
    other = folder / "with_option"
    other.mkdir()
    spark = document["spark"] | {"conf": {"spark.driver.extraJavaOptions": option}}
    (other / "tributary.yaml").write_text(yaml.safe_dump(document | {"spark": spark}))
    return other


def command(folder: Path, *arguments: str) -> list[str]:
    tributary = Path(sys.executable).with_name("tributary")
    return [str(tributary), *arguments, "--config", str(folder / "tributary.yaml")]


def arrived(document: Any, names: list[str], source: psycopg.Connection[Any]) -> None:
    """Wait until all changes that were written are committed to Kafka."""
    services = Services(Config.model_validate(document), NullProgress())
    try:
        wait_for_events(services, [TableId(SOURCE, "public", name) for name in names], source)
    finally:
        services.close()


@contextlib.contextmanager
def set_aside(archive: Path) -> Iterator[None]:
    """Hide the archive from the commands of one side."""
    hidden = archive.with_suffix(".aside")
    archive.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(archive)


def timed(folder: Path, commits: int, project: Path) -> Start:
    """Run the command once with the configuration in ``project``, and count its commits."""
    began, start, cpu = time.time(), time.perf_counter(), 0.0
    process = psutil.Popen(
        command(project, "run"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None:
        assert time.perf_counter() - start < LIMIT_S, "the command does not end"
        cpu = max(cpu, cpu_seconds(process))
        time.sleep(0.05)
    wall = time.perf_counter() - start
    assert process.returncode == 0, f"exit code {process.returncode}"
    made = [file.stat().st_mtime for file in (folder / "lake").rglob(".hoodie/*.commit")]
    new = [at - began for at in made if at >= began]
    assert len(new) == commits, f"{len(new)} commits of {commits} tables"
    return Start(min(new), wall, cpu)


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process and its descendants, without those that have ended."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                used = one.cpu_times()
                total += used.user + used.system
    return total


def report(starts: dict[tuple[int, str], list[Start]]) -> int:
    """Print the figures; the exit code says whether the gate is reached."""
    figures: dict[str, Any] = {}
    for active in sorted({number for number, _ in starts}):
        figures[f"{active} active"] = {
            "median_seconds": {side: medians_of(starts[active, side]) for side in SIDES},
            "ratio": {
                "archive_to_none": ratios_of(starts[active, WITH_ARCHIVE], starts[active, WITHOUT]),
                "c1_to_both_compilers": ratios_of(
                    starts[active, C1_ONLY], starts[active, WITH_ARCHIVE]
                ),
            },
        }
    one = next(iter(figures.values()))
    saved = one["ratio"]["archive_to_none"]["cpu"]
    first = one["median_seconds"][WITH_ARCHIVE]["first_commit"]
    reached = saved <= GATE and first <= GATE_S
    gate = {"wanted_cpu": GATE, "wanted_first_commit_s": GATE_S, "reached": reached}
    print(json.dumps(figures | {"gate": gate}, indent=2))
    return 0 if reached else 1


def medians_of(starts: list[Start]) -> dict[str, float]:
    """Return the medians of a side's figures, in seconds."""
    found = list(map(asdict, starts))
    return {name: round(statistics.median(one[name] for one in found), 2) for name in found[0]}


def ratios_of(above: list[Start], below: list[Start]) -> dict[str, float]:
    """Return the medians of the ratios of two sides, of which each is of one round."""
    rounds = [(asdict(one), asdict(other)) for one, other in zip(above, below, strict=True)]
    return {
        name: round(statistics.median(one[name] / other[name] for one, other in rounds), 2)
        for name in rounds[0][0]
    }


if __name__ == "__main__":
    sys.exit(main())
