"""Each process reads a completed rollback of a lake table once, and not again in each look."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.lake import rollbacks
from cdc.lake.rollbacks import undone_by


class JavaList(list[Any]):
    """A Java list as py4j shows it; its text is like Hudi's text of rollbacks."""

    def get(self, place: int) -> Any:
        return self[place]

    def size(self) -> int:
        return len(self)

    def toString(self) -> str:
        return f"[{', '.join(f'[{one}__rollback__COMPLETED]' for one in self)}]"


@dataclass
class Lake:
    """A fake of Hudi's meta client with a table's rollbacks, which counts the files read."""

    path: str
    undone: dict[str, str] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    def getActiveTimeline(self) -> Any:
        return SimpleNamespace(
            getRollbackTimeline=lambda: SimpleNamespace(
                getInstants=lambda: JavaList(self.undone),
            ),
            readRollbackMetadata=self._read,
        )

    def _read(self, at: str) -> Any:
        self.reads.append(at)
        return SimpleNamespace(getCommitsRollback=lambda: JavaList([self.undone[at]]))

    def look(self) -> frozenset[str]:
        return undone_by(cast("Any", None), self.path, self)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollbacks, "_cache", rollbacks._Cache())


def test_looks_read_only_new_rollbacks() -> None:
    lake = Lake("file:/lake/t", {"11": "10", "21": "20"})
    assert [lake.look() for _ in range(3)] == [{"10", "20"}] * 3
    assert lake.reads == ["11", "21"]

    lake.undone["31"] = "30"
    assert lake.look() == {"10", "20", "30"}
    assert lake.reads == ["11", "21", "31"]
    del lake.undone["11"]
    assert lake.look() == {"20", "30"}, "what Hudi has archived is not undone for ever"


def test_tables_have_rollbacks_of_their_own() -> None:
    one, other = Lake("file:/lake/t", {"11": "10"}), Lake("file:/lake/u", {"11": "9"})
    assert (one.look(), other.look(), one.look()) == ({"10"}, {"9"}, {"10"})


def test_the_memory_is_bounded_and_keeps_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollbacks, "MOST_CACHED_ROLLBACKS", 2)
    active = Lake("file:/lake/t", {"11": "10"})
    for number in range(5):
        Lake(f"file:/lake/{number}", {"11": "10"}).look()
        active.look()
    assert active.reads == ["11"]
    assert len(rollbacks._cache._undone) == 2
