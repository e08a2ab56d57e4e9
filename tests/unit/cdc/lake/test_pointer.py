from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from cdc.errors import LakeError, LostHistoryError
from cdc.lake.pointer import POINTER, Pointer, Published, local_folder, moved, read_local

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def published(number: int) -> Published:
    return Published(f"/l/attempt={number}", number, f"{number}", NOW + timedelta(days=number))


def test_a_pointer_remembers_what_it_showed_before() -> None:
    pointer = moved(moved(moved(None, published(1)), published(2)), published(3))
    assert pointer.path == "/l/attempt=3"
    assert pointer.former == (published(2), published(1))
    assert Pointer.from_json(pointer.to_json(), folder="/l") == pointer


def test_publishing_again_changes_nothing() -> None:
    pointer = moved(moved(None, published(1)), published(2))
    again = Published("/l/attempt=2", 2, "2", NOW + timedelta(days=9))
    assert moved(pointer, again) == pointer


def test_a_former_generation_is_not_published_again() -> None:
    """This could happen with a state store from a backup that is older than a resync."""
    pointer = moved(moved(None, published(1)), published(2))
    with pytest.raises(LostHistoryError, match=r"generation 1, attempt 1, .* by generation 2") as e:
        moved(pointer, published(1))
    assert e.value.context["path"] == "/l/attempt=1"
    assert "tributary bootstrap" in e.value.remedy


def test_a_generation_continues_from_those_before_it_without_a_break() -> None:
    first, second, third = published(1), published(2), published(3)
    second, third = replace(second, continues="1"), replace(third, continues="2")
    pointer = moved(moved(moved(None, first), second), third)
    assert Pointer.from_json(pointer.to_json(), folder="/l") == pointer
    assert [pointer.continues_from(one) for one in ("1", "2", "3", "0")] == [
        True,
        True,
        True,
        False,
    ]
    broken = moved(moved(moved(None, first), replace(second, continues=None)), third)
    assert [broken.continues_from(one) for one in ("1", "2", "3")] == [False, True, True]
    removed = replace(pointer, former=(first,))
    assert [removed.continues_from(one) for one in ("1", "2", "3")] == [False, True, True]
    other = moved(pointer, published(4))
    assert [other.continues_from(one) for one in ("1", "3", "4")] == [False, False, True]


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/lake/a b", "/lake/a b"),
        ("file:/lake/orders", "/lake/orders"),
        ("file:///lake/100%25", "/lake/100%25"),
        ("relative/lake", "relative/lake"),
        ("file://host/lake", None),
        ("s3a://bucket/lake", None),
        ("hdfs:/lake", None),
    ],
)
def test_what_is_on_this_machine(url: str, folder: str | None) -> None:
    assert local_folder(url) == (None if folder is None else Path(folder))


def test_a_folder_without_a_pointer_shows_nothing(tmp_path: Path) -> None:
    assert read_local(tmp_path) is None
    (tmp_path / POINTER).write_text(moved(None, published(1)).to_json())
    found = read_local(tmp_path)
    assert found is not None
    assert found.current == published(1)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"path": 1}', b'{"path": "\xe9"}'])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / POINTER).write_bytes(content)
    with pytest.raises(LakeError, match=r"_current\.json (lacks|is not)"):
        read_local(tmp_path)
