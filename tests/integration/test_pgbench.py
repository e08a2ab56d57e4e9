"""pgbench's tables are replicated while pgbench writes to them, faster than in test_commands.py."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.integration.rigs.pgbench import KEYED, KEYLESS, fill, load, rows, written
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

SCALE = int(os.environ.get("TRIBUTARY_PGBENCH_SCALE", "5"))


@pytest.mark.breadth
def test_tables_under_load_end_up_equal(database: Database, tmp_path: Path) -> None:
    fill(database, SCALE)
    project = Project.create(tmp_path, database)

    with load(database, tmp_path / "pgbench.log", per_second=300) as process:
        time.sleep(3)
        before = written(database)
        refused = project.run("onboard", KEYLESS, "--output", "json")
        onboarded = project.run("onboard", *KEYED)
        assert process.poll() is None, "pgbench ended before onboard returned"
        assert written(database) > before, "pgbench wrote nothing while onboard ran"

    onboarded.expect(0)
    assert refused.code != 0
    text = refused.stdout + refused.stderr
    for choice in ("REPLICA IDENTITY USING INDEX", "REPLICA IDENTITY FULL", "key_columns"):
        assert choice.lower() in text.lower(), f"the refusal does not name {choice}: {text}"

    project.run("run").expect(0)
    status = {row["table"]: row for row in project.run("status", "--output", "json").json["tables"]}
    accounts = status[f"{database.name}:{KEYED[0]}"]["handoff"]
    assert sum(accounts["handoff_offsets"].values()) > sum(accounts["start_offsets"].values()), (
        f"no event of {KEYED[0]} fell between O and H: {accounts}"
    )
    verified = project.run("verify", *KEYED, "--output", "json").expect(0).json
    found = {row["table"]: row for row in verified["tables"]}
    for table, count in rows(SCALE).items():
        assert found[f"{database.name}:{table}"]["rows_compared"] == count
        assert found[f"{database.name}:{table}"]["equal"] is True
