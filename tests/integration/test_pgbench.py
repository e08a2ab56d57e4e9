"""pgbench's tables move to the lake while pgbench writes to them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

SCALE = int(os.environ.get("TRIBUTARY_PGBENCH_SCALE", "5"))
TABLES = ("public.pgbench_accounts", "public.pgbench_branches", "public.pgbench_tellers")


def pgbench() -> str:
    found = shutil.which("pgbench") or next(
        iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/pgbench")), reverse=True)),
        None,
    )
    assert found, "pgbench is not installed: it comes with the PostgreSQL server's package"
    return found


@contextlib.contextmanager
def load(dsn: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """300 transactions a second by 4 clients, for as long as the block runs."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [pgbench(), "-n", "-c", "4", "-R", "300", "-T", "900", "-P", "5", dsn],
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()  # SIGINT is ignored by what a background shell starts
        process.wait(30)


@pytest.mark.breadth
def test_tables_under_load_end_up_equal(database: Database, tmp_path: Path) -> None:
    dsn = database.dsn()
    subprocess.run([pgbench(), "-i", "-q", "-s", str(SCALE), dsn], check=True, capture_output=True)
    project = Project.create(tmp_path, database)

    with load(dsn, tmp_path / "pgbench.log") as process:
        time.sleep(3)
        before = written(project)
        refused = project.run("onboard", "public.pgbench_history", "--output", "json")
        onboarded = project.run("onboard", *TABLES)
        assert process.poll() is None, "pgbench ended before onboard returned"
        assert written(project) > before, "pgbench wrote nothing while onboard ran"

    onboarded.expect(0)
    assert refused.code != 0
    text = refused.stdout + refused.stderr
    for choice in ("REPLICA IDENTITY USING INDEX", "REPLICA IDENTITY FULL", "key_columns"):
        assert choice.lower() in text.lower(), f"the refusal does not name {choice}: {text}"

    project.run("run").expect(0)
    status = {row["table"]: row for row in project.run("status", "--output", "json").json["tables"]}
    accounts = status[f"{database.name}:{TABLES[0]}"]["handoff"]
    assert sum(accounts["handoff_offsets"].values()) > sum(accounts["start_offsets"].values()), (
        f"no event of {TABLES[0]} fell between O and H: {accounts}"
    )
    verified = project.run("verify", *TABLES, "--output", "json").expect(0).json
    rows = {row["table"]: row for row in verified["tables"]}
    for table, count in zip(TABLES, (100_000 * SCALE, SCALE, 10 * SCALE), strict=True):
        assert rows[f"{database.name}:{table}"]["rows_compared"] == count
        assert rows[f"{database.name}:{table}"]["equal"] is True


def written(project: Project) -> int:
    """How many transactions pgbench has committed."""
    return int(project.database.rows("select count(*) from public.pgbench_history")[0][0])
