"""The steps of an upkeep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import FencedError, LakeError
from cdc.lake import upkeep as module
from cdc.lake.upkeep import Upkeep


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of an upkeep whose cleaning fails, as they are done."""
    steps = list[str]()

    def clean() -> None:
        steps.append("clean")
        raise LakeError("no right to delete", remedy="Grant it.")

    client = SimpleNamespace(clean=clean, archive=lambda: steps.append("archive"))

    @contextmanager
    def opened(*_: object) -> Iterator[Any]:
        yield client

    monkeypatch.setattr(module, "_write_client", opened)
    monkeypatch.setattr(Upkeep, "_delete_late_files", lambda _: steps.append("late files"))
    monkeypatch.setattr(Upkeep, "_cluster", lambda _: steps.append("cluster"))
    return steps


def test_a_cleaning_that_fails_keeps_no_other_step_from_its_work(done: list[str]) -> None:
    """Without archiving, each commit reads a longer timeline; without merges, more small files."""
    upkeep = Upkeep(cast("Any", None), "/lake", {}, lambda: None, merging="judged")
    with pytest.raises(LakeError, match="no right to delete"):
        upkeep.run()
    assert done == ["clean", "late files", "archive", "cluster"]


def test_nothing_is_archived_while_late_files_cannot_be_deleted(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the late files of a commit that was rolled back once it is archived."""

    def fails(_: Upkeep) -> None:
        raise LakeError("no right to list", remedy="Grant it.")

    monkeypatch.setattr(Upkeep, "_delete_late_files", fails)
    with pytest.raises(LakeError):
        Upkeep(cast("Any", None), "/lake", {}, lambda: None, merging="judged").run()
    assert done == ["clean", "cluster"]


def test_an_upkeep_without_its_lease_ends_at_once(done: list[str]) -> None:
    def check() -> None:
        if done:
            raise FencedError("the lease is lost", remedy="None.")

    with pytest.raises(FencedError):
        Upkeep(cast("Any", None), "/lake", {}, check, merging="judged").run()
    assert done == ["clean"]
