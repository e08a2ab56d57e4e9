"""Each command reports a state store that has lost all tables, or the tables since its backup."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from stack.mysql_software import MARIADB
from stack.postgres import POSTGRES
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.project import Project

ORDERS = "public.orders"
NEW = "No table is on the plan."


def moved(source: Path, to: Path) -> None:
    """Move the files of a state store to another folder."""
    to.mkdir(exist_ok=True)
    for file in source.glob("state.db*"):
        file.rename(to / file.name)


@pytest.mark.breadth
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_a_state_store_that_lost_its_tables_is_told_until_it_is_restored(
    database: OwnDatabase, tmp_path: Path
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


SHARDS = {
    "sales.orders": {"from": ["*.orders_[0-9]+"], "shard": "{table}"},
    "*.extra": {"tier": "fast"},
}


def problems(project: Project) -> dict[str, str]:
    """The problem that ``status`` reports of each capture, by tier."""
    captures = project.run("status", "--output", "json").expect(3).json["captures"]
    return {one["tier"]: one["problem"] for one in captures}


@pytest.mark.breadth
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", kinds(MARIADB, of=(POSTGRES, MARIADB)), indirect=True)
def test_tables_that_were_onboarded_since_the_restored_backup_are_named_until_they_are_again(
    database: OwnDatabase, tmp_path: Path
) -> None:
    tables = ("orders_0", "orders_1", "items", "extra")
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
        database.load(table, ((n, 0) for n in range(1, 21)))
    project = Project.create(tmp_path, database, tables=SHARDS)
    first, shard, items, extra = (str(project.table(table)) for table in tables)
    project.run("onboard", first).expect(0)
    backup = tmp_path / "backup"
    backup.mkdir()
    for file in tmp_path.glob("state.db*"):
        shutil.copy(file, backup / file.name)
    project.run("onboard", shard, items, extra).expect(0)

    moved(tmp_path, tmp_path / "lost")
    moved(backup, tmp_path)
    for table in tables:
        database.execute(
            f"UPDATE {table} SET v = 1 WHERE id < 9", f"DELETE FROM {table} WHERE id = 9"
        )
    told = project.run("run").expect(3).stdout
    assert f"has {items}, {shard}, which no table on the plan is: no run applies what" in told
    assert f"has {extra}, which no table on the plan is" in told
    remedy = f"Then run `tributary onboard {items} {shard}`, which copies them again."
    assert f"restored from a backup, or was a command interrupted? {remedy}" in told
    found = problems(project)
    assert remedy in found["default"]
    assert extra in found["fast"]
    assert remedy in project.run("check").expect(1).stdout.replace("\n", " ")
    file = tmp_path / "tributary.prom"
    project.run("metrics", "--textfile", str(file)).expect(0)
    series = re.findall(r'tributary_capture_problem{.*tier="(\w+)"} 1.0', file.read_text())
    assert sorted(series) == ["default", "fast"]

    project.run("onboard", items, shard).expect(0)
    assert {tier for tier, text in problems(project).items() if text} == {"fast"}
    statement = f"`tributary onboard --no-bootstrap {extra}`, then `tributary offboard {extra}`"
    assert statement in found["fast"]
    project.run("onboard", "--no-bootstrap", extra).expect(0)
    project.run("offboard", extra).expect(0)
    database.execute(*(f"UPDATE {table} SET v = 2 WHERE id < 4" for table in tables))
    project.run("run").expect(0)
    project.run("verify", first, shard, items).expect(0)
    project.run("status").expect(0)
    project.run("check").expect(0)
