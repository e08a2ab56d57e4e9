"""A project of a test's own (configuration, state and lake in one folder), driven by the CLI."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from schemas.table import TableId
from tests.integration.rigs.databases import OwnDatabase

TIMEOUT_S = 420
PROGRAM = Path(sys.executable).with_name("tributary")


@dataclass(frozen=True)
class Project:
    """One configuration file, with its source database and its lake.

    Args:
        folder: Holds ``tributary.yaml``, the state store and the lake.
        database: The database of the one source. The source has the name of the database.
        program: The path of ``tributary``; by default that of the environment of the tests.
    """

    folder: Path
    database: OwnDatabase
    program: Path = PROGRAM

    @classmethod
    def create(
        cls,
        folder: Path,
        database: OwnDatabase,
        *,
        tables: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Project:
        """Create a project and write its configuration file."""
        project = cls(folder, database)
        project.configure(tables, defaults)
        return project

    def configure(
        self, tables: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
    ) -> None:
        """Write the configuration file, derived from the configuration that the stack writes."""
        config = self.database.document(self.folder)
        config["lake"] = {"url": (self.folder / "lake").as_uri()}
        config["state"] = {"url": f"sqlite:///{self.folder / 'state.db'}"}
        config["tables"] = dict(tables or {})
        config["defaults"] = dict(defaults or {})
        config["spark"] = {"master": "local[2]", "driver_memory": "2g"}
        self.file.write_text(yaml.safe_dump(config))

    @property
    def file(self) -> Path:
        """The configuration file."""
        return self.folder / "tributary.yaml"

    def table(self, name: str) -> TableId:
        """The product's identifier of a table of the source."""
        return self.database.table(name)

    def label(self, name: str) -> str:
        """The name of a table of the source on the command line."""
        return self.database.label(name)

    def run(self, *arguments: str, crash_at: str | None = None, timeout: float = TIMEOUT_S) -> Ran:
        """Run ``tributary`` with this project's configuration, in a process of its own."""
        done = subprocess.run(
            command(self, *arguments),
            env=environment(crash_at),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ran(tuple(arguments), done.returncode, done.stdout, done.stderr)

    def run_together(self, *commands: Sequence[str]) -> list[Ran]:
        """Run read-only commands at the same time; returns their results in the same order."""
        with ThreadPoolExecutor(len(commands)) as threads:
            return list(threads.map(lambda arguments: self.run(*arguments), commands))

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Start ``tributary`` and leave it running; its output goes to ``log``."""
        with log.open("wb") as sink:
            return subprocess.Popen(
                command(self, *arguments),
                env=environment(None),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def execute(self, *statements: str) -> None:
        """Run statements on the primary, each in a transaction of its own."""
        self.database.execute(*statements)

    def source_rows(self, relation: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows of a table on the primary, sorted."""
        listed = ", ".join(map(self.database.quoted, columns))
        place = ".".join(map(self.database.quoted, relation.split(".", 1)))
        return sorted(self.database.rows(f"select {listed} from {place}"), key=repr)

    def lake_rows(self, spark: Any, relation: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows of the published table, sorted, read by Spark without code of the product."""
        schema, name = relation.split(".", 1)
        pointer = self.folder / "lake" / self.database.name / schema / name / "_current.json"
        path = json.loads(pointer.read_text())["path"]
        frame = spark.read.format("hudi").load(path)
        quoted = ["`" + column.replace("`", "``") + "`" for column in columns]
        return sorted((tuple(row) for row in frame.selectExpr(*quoted).collect()), key=repr)

    def assert_equal(self, spark: Any, relation: str, columns: Sequence[str]) -> None:
        """Assert that source and lake hold the same rows, and at least one row."""
        source = self.source_rows(relation, columns)
        lake = self.lake_rows(spark, relation, columns)
        assert source, f"{relation} is empty on the source: the comparison would prove nothing"
        missing = [row for row in source if row not in set(lake)]
        extra = [row for row in lake if row not in set(source)]
        assert not missing, f"{relation}: {len(missing)} rows are missing, as {missing[:3]}"
        assert not extra, f"{relation}: {len(extra)} rows are extra, as {extra[:3]}"
        assert len(source) == len(lake), f"{relation}: rows are doubled in the lake"


@dataclass(frozen=True)
class Ran:
    """The arguments, the exit code and the output of one run of the command line."""

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    def expect(self, *codes: int) -> Ran:
        """Return this object, after asserting that the exit code is one of ``codes``."""
        assert self.code in codes, (
            f"tributary {' '.join(self.arguments)} ended with {self.code}, not {codes}\n"
            f"--- stdout\n{self.stdout[-6000:]}\n--- stderr\n{self.stderr[-6000:]}"
        )
        return self

    @property
    def lines(self) -> list[str]:
        """The lines on stdout."""
        return self.stdout.splitlines()

    @property
    def json(self) -> Any:
        """The output of a command that ran with ``--output json``."""
        return json.loads(self.stdout)


def command(project: Project, *arguments: str) -> list[str]:
    """The argument vector of one call of the command line."""
    return [str(project.program), *arguments, "--config", str(project.file)]


def environment(crash_at: str | None) -> dict[str, str]:
    """The environment of one call, with the crash point armed if one is named."""
    clean = {key: value for key, value in os.environ.items() if key != "TRIBUTARY_CRASH_AT"}
    return clean | ({"TRIBUTARY_CRASH_AT": crash_at} if crash_at else {})


def plain(value: Any) -> Any:
    """A cell's value; a decimal without its trailing zeros, so that equal decimals look equal."""
    return value.normalize() if isinstance(value, Decimal) else value


def killed_at(project: Project, point: str, *arguments: str) -> None:
    """Run the command in a process that dies at the point, and assert that it was killed."""
    killed = project.run(*arguments, crash_at=point)
    assert killed.code == -signal.SIGKILL, (
        f"{point} was not passed by `tributary {' '.join(arguments)}` (exit {killed.code}):\n"
        f"{killed.stdout[-3000:]}\n{killed.stderr[-3000:]}"
    )
