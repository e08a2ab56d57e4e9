"""A state store that has lost its tables is told from that of a new project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

ORDERS = "public.orders"
NEW = "No table is on the plan."


def moved(source: Path, to: Path) -> None:
    """Move a state store to another folder, as its files."""
    to.mkdir(exist_ok=True)
    for file in source.glob("state.db*"):
        file.rename(to / file.name)


@pytest.mark.breadth
@pytest.mark.timeout(900)
def test_a_state_store_that_lost_its_tables_is_told_until_it_is_restored(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int)")
    database.load("orders", ((n, 0) for n in range(1, 51)))
    project = Project.create(tmp_path, database)
    assert NEW in project.run("status").expect(0).stdout, "a new project"
    project.run("onboard", ORDERS).expect(0)
    (capture,) = project.run("status", "--output", "json").expect(0).json["captures"]
    assert capture["connector"] == "running"

    moved(tmp_path, tmp_path / "backup")
    for arguments in (("status",), ("run",), ("run", "--continuous", "--interval", "1")):
        told = project.run(*arguments).expect(3).stdout
        assert NEW not in told
        assert "has no table, but Kafka Connect has connector" in told
        assert "What to do: Check state.url. If the state store was lost" in told
    assert "state store: tables" in project.run("check").expect(1).stdout
    file = tmp_path / "tributary.prom"
    project.run("metrics", "--textfile", str(file)).expect(0)
    assert "tributary_connectors_without_tables 1.0" in file.read_text()

    moved(tmp_path / "backup", tmp_path)
    database.execute("UPDATE orders SET v = 1 WHERE id < 9")
    project.run("run").expect(0)
    project.run("verify", ORDERS).expect(0)
    project.run("offboard", ORDERS, "--delete-data").expect(0)
    assert NEW in project.run("status").expect(0).stdout
    project.run("metrics", "--textfile", str(file)).expect(0)
    assert "tributary_connectors_without_tables 0.0" in file.read_text()
