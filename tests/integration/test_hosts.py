"""Two drivers on separate machines with one state store: leases, fencing and power cuts."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from cdc.store.lease import DEFAULT_TTL_S
from cdc.store.state_store import Store
from cdc.store.tables import leases
from tests.integration.rigs.at_work import at_work
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.hosts import Host, host
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

pytestmark = pytest.mark.breadth

TABLES = ("orders", "items")
ROWS = 20_000
CONTINUOUS = ("run", "--continuous", "--interval", "1")
PART = 1000
"""One of this number of rows changes at a time; more changes would only slow commits down."""
TURNS_S = 600.0
"""Limit, in seconds, until both hosts have started Spark and committed, on a busy machine."""


@dataclass(frozen=True)
class Site:
    """A project with a state store on a server, and queries on the project's tables and leases."""

    project: Project
    store: Store

    def lease(self, table: str) -> tuple[str, float, float]:
        """The host that holds a table's lease, the lease's expiry, and the store's present time."""
        row = leases.c.resource == str(self.project.table(table))
        query = sa.select(leases.c.owner, leases.c.expires_at, self.store.clock).where(row)
        with self.store.transaction() as connection:
            owner, expires, now = connection.execute(query).one()
        return str(owner or "").partition(":")[0], expires, now

    def commits(self, table: str) -> list[dict[str, Any]]:
        """The product's records in a table's complete commits by runs, the oldest first."""
        said = filter(
            None, map(_said, sorted(self.folder(table).glob("attempt=*/.hoodie/*.commit")))
        )
        return [one for one in said if one["kind"] == "run"]

    def commits_of(self, name: str) -> int:
        """The number of commits that a host has made, in all tables together."""
        return sum(one["host"] == name for table in TABLES for one in self.commits(table))

    def newest_is_of(self, name: str, table: str) -> bool:
        """Whether a host made the newest commit of a table."""
        return [one["host"] for one in self.commits(table)][-1:] == [name]

    def folder(self, table: str) -> Path:
        """The folder of a table in the lake."""
        return self.project.folder / "lake" / self.project.database.name / "public" / table


def _said(file: Path) -> dict[str, Any] | None:
    """The product's record in a file of Hudi's timeline.

    None if the file has no such record, or is not completely written yet.
    """
    try:
        record = json.loads(file.read_text())["extraMetadata"].get("tributary.commit")
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return None if record is None else dict(json.loads(record))


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[Site]:
    """A project with onboarded tables, which are so large that each commit takes a moment."""
    for table in TABLES:
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v int, note text)",
            f"INSERT INTO {table} SELECT g, 0, md5(g::text) FROM generate_series(1, {ROWS}) g",
        )
    project = Project.create(tmp_path, database)
    document = yaml.safe_load(project.file.read_text())
    document["state"] = {"url": database.dsn()}
    project.file.write_text(yaml.safe_dump(document))
    project.run("onboard", *(f"public.{table}" for table in TABLES)).expect(0)
    store = Store(database.dsn())
    yield Site(project, store)
    store.close()


@pytest.mark.timeout(3000)
def test_of_two_hosts_one_sleeps_and_one_loses_power_and_no_commit_is_doubled(
    site: Site, tmp_path: Path
) -> None:
    with (
        host("east", site.project, *CONTINUOUS, log=tmp_path / "east.log") as east,
        host("west", site.project, *CONTINUOUS, log=tmp_path / "west.log") as west,
        writers(site),
    ):

        def see(fact: Callable[[], bool], what: str) -> None:
            wait_until(fact, what, TURNS_S, lambda: told(east, west))

        see(lambda: min(map(site.commits_of, ("east", "west"))) > 0, "commits of both")

        # A machine that is suspended amid a commit, for longer than its lease.
        table = suspended_amid_a_commit(east, site)
        before = site.commits_of("east")
        taken_over_by("west", table, site)
        see(lambda: site.newest_is_of("west", table), "west goes on")
        assert site.commits_of("east") == before
        east.resume()
        see(lambda: site.commits_of("east") > before, "east works again")
        assert f".{table} was lost: another process has taken it over" in east.said()

        # A machine that loses power amid a commit.
        table = suspended_amid_a_commit(east, site)
        east.cut_power()
        taken_over_by("west", table, site)
        for one in TABLES:
            see(lambda one=one: site.newest_is_of("west", one), f"west goes on with {one}")  # type: ignore[misc]
        assert west.end() == 0, west.said()[-2000:]
    site.project.run("run").expect(0)
    for table in TABLES:
        assert_each_change_is_in_one_commit(site, table)
    names = [f"public.{table}" for table in TABLES]
    verified = site.project.run("verify", *names, "--output", "json").expect(0).json["tables"]
    assert [(one["equal"], one["rows_compared"]) for one in verified] == [(True, ROWS)] * len(
        TABLES
    )


@contextlib.contextmanager
def writers(site: Site) -> Iterator[None]:
    """Change a few rows of all tables again and again, while a block runs."""

    def write(number: int, stop: threading.Event) -> None:
        for turn in itertools.count():
            if stop.wait(1):
                return
            change = f"UPDATE {TABLES[number]} SET v = v + 1 WHERE id % {PART} = {turn % PART}"
            site.project.execute(change)

    with at_work(write, len(TABLES)):
        yield


def suspended_amid_a_commit(machine: Host, site: Site) -> str:
    """Suspend a machine while it writes a data file and holds the table's lease; returns the table.

    The last check of the commit, which can still refuse the commit, has not run yet.
    """

    def amid(table: str) -> bool:
        return machine.writes_below(site.folder(table)) and site.lease(table)[0] == machine.name

    deadline = time.monotonic() + TURNS_S
    while time.monotonic() < deadline:
        table = next((one for one in TABLES if amid(one)), None)
        if table is None:
            time.sleep(0.02)
            continue
        machine.suspend()
        if amid(table):
            return table
        machine.resume()  # it was quicker
    raise AssertionError(f"{machine.name} was not seen to write: {machine.said()[-2000:]}")


def taken_over_by(heir: str, table: str, site: Site) -> None:
    """Wait until a host takes over a lease; asserts that the former lease had expired by then."""
    holder, until, _ = site.lease(table)
    assert holder != heir

    def taken() -> bool:
        found, _, now = site.lease(table)
        assert found == holder or now >= until, "taken before it expired"
        return found == heir

    wait_until(taken, f"{heir} takes the lease on {table}", DEFAULT_TTL_S + 60)


def assert_each_change_is_in_one_commit(site: Site, table: str) -> None:
    """Assert that each commit starts at the offsets at which the commit before it ended."""
    commits = site.commits(table)
    assert len(commits) > 1
    for earlier, later in itertools.pairwise(commits):
        assert later["start_offsets"] == earlier["offsets"], (earlier, later)


def told(*machines: Host) -> str:
    return "\n".join(f"{one.name}: {one.said()[-2000:]}" for one in machines)
