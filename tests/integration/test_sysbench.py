"""sysbench's tables are replicated to the lake while sysbench writes to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.project import Project
from tests.integration.rigs.sysbench import ROWS, Sysbench, find_sysbench


@for_each_kind()
def test_tables_under_load_end_up_equal(
    database: OwnDatabase, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    sysbench = Sysbench(find_sysbench(pytestconfig), database, tmp_path)
    sysbench.prepare()
    project = Project.create(tmp_path, database)
    tables = [project.label(name) for name in sysbench.tables]
    with sysbench.load() as process:
        project.run("onboard", *tables).expect(0)
        for _ in range(2):
            written = project.run("run", "--output", "json").expect(0).json
            assert process.poll() is None, sysbench.log.read_text()
            events = {row["table"]: row["events"] for row in written["tables"]}
            assert set(events) == {str(project.table(name)) for name in sysbench.tables}
            assert min(events.values()) > 0, "nothing was written meanwhile"

    status = {row["table"]: row for row in project.run("status", "--output", "json").json["tables"]}
    verified = project.run("verify", *tables, "--output", "json").expect(0).json
    rows = {row["table"]: row for row in verified["tables"]}
    for name in sysbench.tables:
        handoff = status[str(project.table(name))]["handoff"]
        between = sum(handoff["handoff_offsets"].values()) - sum(handoff["start_offsets"].values())
        assert between > 0, f"no event of {name} fell between O and H"
        found = rows[str(project.table(name))]
        assert (found["equal"], found["rows_compared"]) == (True, ROWS)
