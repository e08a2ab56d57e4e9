"""An idle table's pointer is read once until the table changes; a failed read stops no table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from cdc.errors import LakeError, LostHistoryError, OtherInstallationError
from cdc.lake.pointer import Pointer, Published, moved
from cdc.run import published_generation as serving
from cdc.store.attempt import Attempt
from cdc.store.installation import Installation
from cdc.store.table_state import CommitSummary, TableRecord
from schemas.table import TableId
from tests.records import table_record

if TYPE_CHECKING:
    from cdc.run.context import RunContext

HERE, ELSEWHERE = Installation.new(), Installation.new()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def table(name: str) -> TableRecord:
    return table_record(
        table=TableId("shop", "public", name),
        base_path=f"/lake/{name}",
        updated_at=NOW,
        attempt=Attempt(UUID(int=1), NOW, f"/lake/{name}/a"),
        version=1,
    )


ONE, OTHER = table("one"), table("other")


class Lake:
    """A fake lake with the pointers of tables' folders; it notes which pointers were read."""

    def __init__(self) -> None:
        self.paths = {one.base_path: f"{one.base_path}/a" for one in (ONE, OTHER)}
        self.attempt = "a"
        self.away = False
        self.lost: set[str] = set()
        self.asked: list[str] = []

    def read(self, _spark: object, base: str) -> Pointer:
        self.asked.append(base)
        if self.away:
            raise LakeError("the bucket does not answer", remedy="Wait.")
        return Pointer.of(Published(self.paths[base], 1, self.attempt, NOW))

    def has_commit(self, _spark: object, path: str, _instant: str) -> bool:
        return path not in self.lost


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Lake:
    known = Lake()
    monkeypatch.setattr(serving, "read_pointer", known.read)
    monkeypatch.setattr(serving, "has_commit", known.has_commit)
    return known


def context_here() -> RunContext:
    store = SimpleNamespace(installation=HERE)
    return cast("RunContext", SimpleNamespace(spark=None, store=store))


def look(served: serving.Served, *records: TableRecord) -> set[str]:
    found = served.differing_from_lake(context_here(), records)
    return {one.name for one in found}


def test_a_pointer_is_read_again_only_once_its_table_has_changed(lake: Lake) -> None:
    served = serving.Served()
    assert look(served, ONE, OTHER) == set()
    assert look(served, ONE, OTHER) == set()
    assert sorted(lake.asked) == ["/lake/one", "/lake/other"]
    assert look(served, replace(ONE, version=2), OTHER) == set()
    assert lake.asked[2:] == ["/lake/one"]


def test_readers_that_are_sent_elsewhere_are_found_at_each_look(lake: Lake) -> None:
    served = serving.Served()
    lake.paths["/lake/one"] = "/lake/one/former"
    assert look(served, ONE, OTHER) == look(served, ONE, OTHER) == {"one"}


def test_another_installation_in_the_folder_of_an_idle_table_is_found_at_each_look(
    lake: Lake,
) -> None:
    served, context = serving.Served(), context_here()
    lake.attempt = str(ELSEWHERE.new_attempt())
    assert look(served, ONE) == set(), "readers see the generation on record"
    lake.paths["/lake/one"] = "/lake/one/theirs"
    newer = replace(ONE, version=2)
    assert look(served, newer) == look(served, newer) == {"one"}
    with pytest.raises(OtherInstallationError, match="knows generation 1, attempt"):
        serving.check_serving(context, newer)
    lake.attempt = str(HERE.new_attempt())
    with pytest.raises(LostHistoryError, match="the pointer names generation 1"):
        serving.check_serving(context, newer)


def test_a_lake_that_lost_the_newest_commit_is_found_until_a_run_has_compared_it(
    lake: Lake,
) -> None:
    served = serving.Served()
    summary = CommitSummary({0: 5}, None, None, "20260102030405000", NOW)
    one = replace(ONE, last_commit=summary)
    lake.lost.add("/lake/one/a")
    assert look(served, one, OTHER) == look(served, one, OTHER) == {"one"}
    served.note_agreement(one)
    assert look(served, one, OTHER) == set()


def test_a_lake_that_is_away_stops_no_idle_table(lake: Lake) -> None:
    served = serving.Served()
    lake.away = True
    assert look(served, ONE, OTHER) == set()
    lake.away = False
    lake.paths["/lake/other"] = "/lake/other/former"
    assert look(served, ONE, OTHER) == {"other"}, "it was not looked at before"


def test_only_pointers_with_former_generations_are_kept_and_settled_ones_until_they_move() -> None:
    served = serving.Served()
    first = Pointer.of(Published("/lake/one/a", 1, "a", NOW))
    second = moved(first, Published("/lake/one/b", 2, "b", NOW))
    third = moved(second, Published("/lake/one/c", 3, "c", NOW))
    for pointer, kept in ((None, {}), (first, {}), (second, {ONE.table: second})):
        served.note_pointer(ONE, pointer)
        assert served.with_former == kept
    served.note_nothing_to_remove(ONE.table, second)
    served.note_pointer(ONE, second)
    assert served.with_former == {}
    served.note_pointer(ONE, third)
    assert served.with_former == {ONE.table: third}


def test_a_run_may_note_a_pointer_while_the_former_one_is_judged() -> None:
    """Workers run tables while the main thread searches for generations to remove."""
    first = Pointer.of(Published("/lake/one/a", 1, "a", NOW))
    second = moved(first, Published("/lake/one/b", 2, "b", NOW))
    third = moved(second, Published("/lake/one/c", 3, "c", NOW))
    for meanwhile, kept in ((None, {}), (third, {ONE.table: third})):
        served = serving.Served()
        served.note_pointer(ONE, second)
        served.note_pointer(ONE, meanwhile)
        served.note_nothing_to_remove(ONE.table, second)
        assert served.with_former == kept
        served.note_pointer(ONE, second)
        assert served.with_former == {}


def test_a_slow_lake_is_not_looked_at_for_ever(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = serving.Served()
    lake.paths["/lake/one"] = "/lake/one/former"
    with monkeypatch.context() as slow:
        slow.setattr(serving, "_LOOK_S", 0.0)
        assert look(served, ONE, OTHER) == set()
    assert (lake.asked, "2 idle tables were not read" in caplog.text) == ([], True)
    assert look(served, ONE, OTHER) == {"one"}
