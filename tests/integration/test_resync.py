"""New generations on the real stack: built beside the serving one, and swapped in one step."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bootstrap.errors import BootstrapError
from bootstrap.handoff import BootstrapResult
from bootstrap.resync import resync_table
from cdc.errors import LostHistoryError, StateError
from cdc.lake import table_services as lake_services
from cdc.lake.generations import FolderKind
from cdc.lake.pointer import local_folder
from cdc.run import run_tables
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import Cause, State, transition
from operate.context import Services
from operate.discover import followed
from operate.exit_codes import ExitCode
from operate.generations import look, remove
from operate.lifecycle import offboard, resume
from operate.resync import resync
from operate.run import Runs
from operate.status import status
from operate.verify.table import verify_table
from schemas.table import TableId
from stack.local import LocalStack
from tests.integration.rigs.bootstrapping import LIMITS, Bootstrapping, Watch, fill, writers
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import own_database
from tests.integration.rigs.running import spark as spark

COLUMNS = ("id", "v", "t")
ROWS = 2000
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def shop(
    stack: LocalStack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bootstrapping]:
    folder = tmp_path_factory.mktemp("resync")
    with (
        own_database(stack) as database,
        closing(Bootstrapping(database, spark, folder)) as opened,
    ):
        yield opened


@dataclass
class Table:
    """A table of one test: copied, published and followed."""

    shop: Bootstrapping
    name: str

    def execute(self, statement: str) -> None:
        """Run a statement; ``T`` stands for the table."""
        self.shop.database.execute(re.sub(r"\bT\b", self.name, statement))

    def resync(self, watch: Watch | None = None) -> BootstrapResult:
        context = self.shop.context(progress=watch or Watch())
        return resync_table(context, self.shop.connect, self.shop.record(self.name), limits=LIMITS)

    def follow(self) -> None:
        """Run the table, as another process would, while the next generation is built."""
        self.shop.settle()
        record = self.shop.record(self.name)
        assert [result.error for result in run_tables(self.shop.context(), [record])] == [None]

    def published(self, where: str = "true") -> int:
        """How many rows readers see."""
        path = self.shop.published(self.name)
        assert path is not None
        return self.shop.spark.read.format("hudi").load(path).where(where).count()

    @property
    def services(self) -> Services:
        return Services(self.shop.config, NullProgress(), spark=self.shop.spark)


@pytest.fixture
def table(shop: Bootstrapping) -> Table:
    name = f"t{next(_NUMBERS)}"
    fill(shop.database, name, ROWS)
    shop.add(name)
    shop.bootstrap(name)
    return Table(shop, name)


def test_the_serving_generation_is_followed_until_the_next_one_takes_its_place(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_services, "UPKEEP_EVERY_COMMITS", 1)
    shop, former = table.shop, table.shop.published(table.name)
    seen: list[tuple[State, bool, int]] = []

    def while_it_is_built() -> None:
        table.execute("UPDATE T SET v = v + 1 WHERE id <= 10")
        table.follow()
        record = shop.record(table.name)
        unmoved = shop.published(table.name) == former
        assert record.size is not None, "measured after each upkeep"
        assert record.size.image_bytes > 1000 < record.size.kept_bytes
        seen.append((record.state, unmoved, table.published("v > 0")))

    with writers(shop.database, table.name, ROWS, count=1) as done:
        result = table.resync(Watch(on_start={"copy": while_it_is_built}))
    assert sum(done) > 10
    assert [(state, unmoved) for state, unmoved, _ in seen] == [(State.INCREMENTAL, True)]
    assert seen[0][2] >= 10, "the serving generation was not followed"
    assert (result.record.generation, result.record.state) == (2, State.INCREMENTAL)
    assert shop.published(table.name) == result.record.attempt.path != former  # type: ignore[union-attr]
    assert shop.store.builds() == []
    assert former is not None
    assert shop.spark.read.format("hudi").load(former).count() > 0, "who has it open reads on"
    shop.catch_up_and_compare(table.name, *COLUMNS)

    folder, record = local_folder(former), shop.record(table.name)
    assert folder is not None
    for keep, there in (("1h", True), ("1s", False)):
        settings = {"retain_generations": 0, "readers_keep": keep}
        shop.configure(**{f"public__{table.name}": settings})
        assert run_tables(shop.context(), [record]) == [], "it is idle"
        assert folder.exists() is there, "a look removes what is former for as long as readers_keep"
    assert run_tables(shop.context(), [record]) == []
    assert table.published() > 0
    (told,) = status(table.services, [record.table]).to_json()["tables"]
    assert told["lake_size"]["image_bytes"] > 1000
    assert told["lake_size"]["other_generations_bytes"] == 0, "measured after each removal"


def test_readers_never_see_an_older_state_after_the_swap(table: Table) -> None:
    def change() -> None:
        table.execute("UPDATE T SET v = 7 WHERE id = 1")

    def overtake() -> None:
        # H is on record: the next generation need not go further by itself.
        table.execute("UPDATE T SET v = 77 WHERE id = 1")
        table.follow()
        assert table.published("v = 77") == 1

    watch = Watch(on_start={"copy": change, "copy > readable": overtake})
    table.resync(watch)
    assert watch.on_start == {}, "both were done"
    assert table.published("v = 77") == 1


def test_after_an_incompatible_change_the_former_generation_stands_still(table: Table) -> None:
    shop = table.shop
    table.execute("ALTER TABLE T ALTER v TYPE text")
    table.execute("UPDATE T SET v = 'seven' WHERE id = 1")
    shop.settle()
    (stopped,) = run_tables(shop.context(), [shop.record(table.name)])
    assert stopped.state is State.NEEDS_BOOTSTRAP
    (told,) = status(table.services, [shop.table(table.name)]).tables
    assert any("generation 1 gets no changes" in note for note in told.notes), told.notes
    settings = {"on_incompatible": "resync", "resync": {"max_rows": ROWS - 1}}
    shop.configure(**{f"public__{table.name}": settings})
    (told,) = status(table.services, [shop.table(table.name)]).tables
    assert any(f"resync.max_rows is {ROWS - 1:,}" in note for note in told.notes), told.notes
    former, seen = shop.published(table.name), []

    def look() -> None:
        seen.append((shop.published(table.name), table.published()))

    result = table.resync(Watch(on_start={"copy": look}))
    assert seen == [(former, ROWS)]
    assert (result.record.generation, result.attempts) == (2, 1)
    assert table.published("v = 'seven'") == 1


def test_a_change_that_breaks_both_generations_gives_the_next_one_up(table: Table) -> None:
    shop, known = table.shop, table.shop.table(table.name)

    def change() -> None:
        table.execute("UPDATE T SET v = v WHERE id = 1")  # so that there is something to catch up

    def alter() -> None:
        table.execute("ALTER TABLE T ALTER v TYPE text")
        shop.settle()
        (stopped,) = run_tables(shop.context(), [shop.record(table.name)])
        assert stopped.state is State.NEEDS_BOOTSTRAP

    with pytest.raises(BootstrapError, match="could not catch up"):
        table.resync(Watch(on_start={"copy": change, "copy > is readable": alter}))
    (done,) = resync(table.services, [known])
    assert (done.error, done.details["rows"], done.details["generation"]) == (None, ROWS, 2)
    assert shop.store.builds() == []
    assert table.published("v = '0'") == ROWS


@pytest.mark.breadth
def test_a_table_that_is_paused_meanwhile_keeps_its_generation(table: Table) -> None:
    shop, former = table.shop, table.shop.published(table.name)

    def pause() -> None:
        record = shop.record(table.name)
        moved = transition(
            record, State.PAUSED, at=record.updated_at, cause=Cause(reason="by a person")
        )
        shop.store.put(moved)

    with pytest.raises(BootstrapError, match="PAUSED"):
        table.resync(Watch(on_start={"copy": pause}))
    assert shop.published(table.name) == former
    (told,) = status(table.services, [shop.table(table.name)]).tables
    assert told.build is not None
    assert any("generation 2 is being built beside it" in note for note in told.notes)

    resume(table.services, shop.table(table.name))
    result = table.resync()
    assert (result.rows, result.attempts, result.record.generation) == (0, 0, 2)
    assert shop.published(table.name) != former
    shop.catch_up_and_compare(table.name, *COLUMNS)


def test_the_command_tells_tables_apart(table: Table) -> None:
    shop, never = table.shop, f"{table.name}_never"
    fill(shop.database, never, 1)
    shop.add(never)
    services = table.services
    done, refused = resync(services, [shop.table(table.name), shop.table(never)])
    assert (done.error, done.details["rows"], done.details["generation"]) == (None, ROWS, 2)
    assert refused.error is not None
    assert "tributary bootstrap" in refused.error.remedy


@pytest.mark.breadth
def test_offboarding_gives_the_next_generation_up(table: Table) -> None:
    shop = table.shop
    known = shop.table(table.name)

    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.resync(Watch(on_start={"copy": leave}))
    assert [build.table for build in shop.store.builds()] == [known]
    offboard(table.services, known, delete_data=False)
    assert shop.store.builds() == []


def test_a_state_store_from_before_a_resync_stops_its_table_by_name(
    table: Table, tmp_path: Path
) -> None:
    shop, known = table.shop, table.shop.table(table.name)
    with closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
        with closing(sqlite3.connect(shop.folder / "state.db")) as store:
            store.backup(backup)
        serving = table.resync().record.attempt
        with closing(sqlite3.connect(shop.folder / "state.db")) as store:
            backup.backup(store)
    assert serving is not None
    with pytest.raises(LostHistoryError, match=r"knows generation 1, .* names generation 2"):
        verify_table(table.services, shop.context(), known)

    (result,) = run_tables(shop.context(), [shop.record(table.name)])

    assert result.state is State.NEEDS_BOOTSTRAP
    assert result.error is not None
    assert str(serving.id) in result.error.message
    assert f"tributary bootstrap {known}" in result.error.remedy
    assert shop.published(table.name) == serving.path
    shop.bootstrap(table.name)
    shop.catch_up_and_compare(table.name, *COLUMNS)


@pytest.mark.breadth
def test_former_generations_stay_as_many_as_asked_for(table: Table) -> None:
    shop, known = table.shop, table.shop.table(table.name)
    shop.configure(**{f"public__{table.name}": {"readers_keep": "1s"}})
    services = table.services
    leftover = f"{shop.record(table.name).base_path}/attempt=00000000-0000-0000-0000-00000000dead"
    (folder := local_folder(leftover)).mkdir()  # type: ignore[union-attr]
    first = shop.published(table.name)
    assert [one.error for one in resync(services, [known])] == [None]
    assert not folder.exists(), "what an attempt left behind goes"  # type: ignore[union-attr]
    assert kinds(services, known) == [(2, FolderKind.SERVING), (1, FolderKind.FORMER)]
    assert [one.error for one in resync(services, [known])] == [None]
    assert kinds(services, known) == [(3, FolderKind.SERVING), (2, FolderKind.FORMER)]
    assert first is not None
    assert not local_folder(first).exists()  # type: ignore[union-attr]

    with pytest.raises(StateError, match="serving and cannot be removed"):
        remove(services, known, ["3"])
    with pytest.raises(StateError, match="no generation 7"):
        remove(services, known, ["2", "7"])
    assert kinds(services, known) == [(3, FolderKind.SERVING), (2, FolderKind.FORMER)]
    assert [one.number for one in remove(services, known, ["2"]).removed] == [2]
    assert kinds(services, known) == [(3, FolderKind.SERVING)]
    assert table.published() == ROWS


@pytest.mark.breadth
def test_a_generation_that_is_built_can_be_given_up(table: Table) -> None:
    shop, known = table.shop, table.shop.table(table.name)

    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.resync(Watch(on_start={"copy > has captured": leave}))
    services = table.services
    assert kinds(services, known) == [(1, FolderKind.SERVING), (2, FolderKind.BUILDING)]
    assert remove(services, known).removed == ()
    remove(services, known, ["2"])
    assert kinds(services, known) == [(1, FolderKind.SERVING)]
    assert shop.store.builds() == []


def kinds(services: Services, table: TableId) -> list[tuple[int | None, FolderKind]]:
    return [(one.number, one.kind) for one in look(services, table)]


def stop_when_copying(shop: Bootstrapping, known: TableId) -> None:
    """Ask this process to stop as soon as a copy of the table has begun."""
    try:
        wait_until(lambda: copying(shop, known), "the copy")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def copying(shop: Bootstrapping, known: TableId) -> bool:
    record = shop.store.get(known)
    return record is not None and record.state is State.BOOTSTRAPPING


def test_a_run_copies_again_what_cannot_follow_within_its_limits(table: Table) -> None:
    shop, known = table.shop, table.shop.table(table.name)
    name = f"public__{table.name}"
    shop.configure(**{name: {"on_incompatible": "resync", "resync": {"max_rows": 10}}})
    table.execute("ALTER TABLE T RENAME v TO w")
    table.execute("UPDATE T SET w = 5 WHERE id = 1")
    shop.settle()

    runs = Runs(table.services, followed(table.services, [str(known)]))
    (stopped,) = runs.once()
    assert stopped.state is State.NEEDS_BOOTSTRAP
    assert runs.resync() == []
    assert "resync.max_rows is 10" in runs.not_resynced[known]
    assert runs.exit_code() is ExitCode.NEEDS_BOOTSTRAP

    shop.configure(**{name: {"on_incompatible": "resync", "resync": {"max_rows": 100_000}}})
    with shop.database.paused():  # so that the copy waits for its marker
        begun = time.monotonic()
        asked = threading.Thread(target=stop_when_copying, args=(shop, known))
        asked.start()
        Runs(table.services, followed(table.services, [str(known)])).repeat(
            0.2, *[lambda *_: None] * 4
        )
        asked.join()
        assert time.monotonic() - begun < 90
    left = shop.store.get(known)
    assert left is not None
    assert (left.state, left.error) == (State.BOOTSTRAPPING, None), "as after a kill"

    runs = Runs(table.services, followed(table.services, [str(known)]))
    assert runs.once() == []
    assert [one.error for one in runs.resync()] == [None]
    assert (runs.not_resynced, runs.exit_code()) == ({}, ExitCode.OK)
    assert table.published("w = 5") == 1
