"""Things that an installation creates bear the name of the installation."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4, uuid5

import pytest

from cdc.store.installation import Installation
from cdc.store.state_store import Store


def opened(file: Path) -> Installation:
    store = Store(f"sqlite:///{file}")
    try:
        return store.installation
    finally:
        store.close()


def test_a_state_store_keeps_its_installation_also_in_a_backup(tmp_path: Path) -> None:
    first = opened(tmp_path / "a.db")
    shutil.copy(tmp_path / "a.db", tmp_path / "backup.db")
    assert opened(tmp_path / "a.db") == opened(tmp_path / "backup.db") == first
    assert opened(tmp_path / "another.db") != first


def test_of_many_who_open_a_new_store_at_once_all_see_one_installation(tmp_path: Path) -> None:
    opened(tmp_path / "warm.db")
    with ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(opened, [tmp_path / "a.db"] * 8)}) == 1


def test_an_attempt_shows_its_installation() -> None:
    here, there = Installation.new(), Installation.new()
    mine = {str(here.new_attempt()) for _ in range(1000)}
    assert len(mine) == 1000
    assert all(one.endswith(here.name) for one in mine)
    assert not any(map(here.is_of_another, mine))
    assert all(map(there.is_of_another, mine))


def test_a_shared_table_has_one_identity_in_each_installation() -> None:
    here, there = Installation.new(), Installation.new()
    mine = here.shared_table("/lake/orders")
    assert mine == here.shared_table("/lake/orders") != here.shared_table("/lake/items")
    assert not here.is_of_another(str(mine))
    assert there.is_of_another(str(mine))


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(str(uuid4()), id="random"),
        pytest.param(str(uuid5(uuid4(), "/lake")), id="of a path"),
        pytest.param("first", id="a word"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_does_not_show_who_made_it_is_of_no_other_installation(attempt: str) -> None:
    assert not Installation.new().is_of_another(attempt)
