"""Only the owner may read the file of a SQLite store, since it can have quarantined messages."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import stamina
import yaml

from cdc.config import parse
from cdc.errors import StateError
from cdc.runtime.progress import NullProgress
from cdc.store.state_store import Store
from operate.check import state_store
from operate.context import Services
from tests.unit.cdc.configuration import minimal


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    former = os.umask(0o022)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_store_waits_for_another_process_that_makes_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE of_another (x)")
    ends = threading.Timer(0.3, other.execute, ["COMMIT"])
    ends.start()
    with stamina.set_testing(False):  # with the code's own waits between its tries
        store = Store(f"sqlite:///{file}")
        assert store.tables() == []
    ends.join()
    other.close()


@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite:///file:{}?uri=true"])
def test_a_new_store_is_its_owners(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "new" / "state"
    store = Store(url.format(folder / "state.db"))
    assert store.tables() == []
    files = {path.name: mode(path) for path in folder.iterdir()}
    assert files == dict.fromkeys(("state.db", "state.db-wal", "state.db-shm"), 0o600)
    assert mode(folder) == 0o700
    assert store.exposed is None


def test_a_store_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    former = Store(f"sqlite:///{file}")
    files = [file, *(tmp_path / f"state.db{end}" for end in ("-wal", "-shm"))]
    for path in files:
        path.chmod(0o644)
    tmp_path.chmod(0o755)
    store = Store(f"sqlite:///{file}")
    assert [mode(path) for path in files] == [0o600] * 3
    assert mode(tmp_path) == 0o755, "the folder was there, and may hold other things"
    assert store.exposed is None
    former.close()


def test_a_file_of_someone_else_is_left_alone_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state.db"
    Store(f"sqlite:///{file}").close()
    file.chmod(0o640)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    services = Services(
        parse(yaml.safe_dump({**minimal(), "state": {"url": f"sqlite:///{file}"}}), base=tmp_path),
        NullProgress(),
    )
    first, second = state_store(services)
    services.close()
    assert mode(file) == 0o640
    assert (first.status, second.status) == ("ok", "warning")
    assert f"other users of this machine can read {file}" in second.detail
    assert f"chmod 600 {file}" in second.remedy


def test_a_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match="cannot be created"):
        Store(f"sqlite:///{tmp_path}/file/state.db")
