"""PostgreSQL's benchmark pgbench: its tables in a test's own database, and its transactions."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from stack.layout import Record
from tests.integration.rigs.postgres import Database

KEYED = ("public.pgbench_accounts", "public.pgbench_branches", "public.pgbench_tellers")
KEYLESS = "public.pgbench_history"


def rows(scale: int) -> dict[str, int]:
    """The number of rows of each pgbench table with a key; transactions do not change it."""
    return dict(zip(KEYED, (100_000 * scale, scale, 10 * scale), strict=True))


def fill(database: Database, scale: int) -> None:
    """Create the tables of pgbench; all have a key, except for the history table."""
    argv = [_program(database), "-i", "-q", "-s", str(scale), database.dsn()]
    subprocess.run(argv, check=True, capture_output=True)


@contextlib.contextmanager
def load(database: Database, log: Path, *, per_second: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the transactions of pgbench with 4 clients, for as long as the block runs."""
    argv = [_program(database), "-n", "-c", "4", "-R", str(per_second), "-T", "900", "-P", "5"]
    with log.open("wb") as sink:
        process = subprocess.Popen([*argv, database.dsn()], stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()  # SIGINT is ignored by what a background shell starts
        process.wait(30)


def written(database: Database) -> int:
    """The number of transactions that have committed: the rows of the history table."""
    return int(database.rows(f"SELECT count(*) FROM {KEYLESS}")[0][0])


def _program(database: Database) -> str:
    binaries = Record.read(database.stack.folder).binaries
    assert binaries is not None, "the stack has PostgreSQL"
    return binaries.path("pgbench")
