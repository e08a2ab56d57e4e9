"""The pages that name the files of a change name few of them, and only files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/rooms.md")
CHANGES = (
    "a new source type",
    "a new column rule",
    "a new schema-change verdict",
    "a new metric",
    "a new command",
    "a new check",
    "another registry",
    "another catalog",
    "another storage",
    "a new failpoint",
)
"""The changes that ARCHITECTURE.md and CONTRIBUTING.md have a row for."""
FILE = re.compile(r"(?:[\w<>.-]+/)+[\w<>.-]*|\b\w+\.(?:py|md|json|lock|html|toml|yaml)\b")
"""Matches the name of a file or a folder, inside or outside of backticks."""
LINES, WORDS = 140, 1_700
"""The most lines and words of ARCHITECTURE.md: two pages, and a row for each new failpoint."""

Row = tuple[str, str]


def text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def rows(page: str) -> list[Row]:
    """The rows of a map's tables: a change, and where it begins."""
    tables = re.findall(r"^\| what \| start here \|\n\|---\|---\|\n((?:\|.*\n)+)", text(page), re.M)
    found = []
    for line in "".join(tables).splitlines():
        change, _, places = line.strip("| ").partition(" | ")
        found.append((change, places))
    return found


def named(places: str) -> list[str]:
    """The files and folders in the second cell of a row, without those in commands and URLs."""
    plain = re.sub(r"`([^`]*)`", lambda m: "" if re.search(r"\s|://", m[1]) else m[1], places)
    return sorted({name.rstrip(".-") for name in FILE.findall(plain)})


def found_files(name: str) -> list[Path]:
    """The files of a name, which can have a placeholder such as `<kind>`."""
    return list(ROOT.glob(re.sub(r"<\w+>", "*", name.rstrip("/"))))


def all_rows() -> list[tuple[str, Row]]:
    return [(page, row) for page in MAPS for row in rows(page)]


def of_row(value: object) -> str:
    return value[0] if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("page", "row"), all_rows(), ids=of_row)
def test_a_row_names_one_to_three_files_that_are_there(page: str, row: Row) -> None:
    files = named(row[1])
    assert [name for name in files if not found_files(name)] == []
    assert 1 <= len(files) <= 3, "split the row"


@pytest.mark.parametrize(("page", "row"), all_rows(), ids=of_row)
def test_what_a_row_names_in_the_code_is_in_its_files(page: str, row: Row) -> None:
    files = [file for name in named(row[1]) for file in found_files(name) if file.is_file()]
    code = "\n".join(file.read_text("utf-8") for file in files)
    names = re.findall(r"`(_?[A-Z]\w+|[a-z]\w*_\w+|_[a-z]\w+)`", row[1])
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_the_ten_changes_have_a_row_each() -> None:
    assert tuple(change.partition(" (")[0] for change, _ in rows("ARCHITECTURE.md")) == CHANGES


def test_contributing_has_the_same_ten_rows() -> None:
    assert rows("CONTRIBUTING.md") == rows("ARCHITECTURE.md")


def test_no_change_has_two_rows() -> None:
    changes = [change for change, _ in rows("docs/rooms.md")]
    assert len(changes) > 70
    assert sorted(set(changes)) == sorted(changes)


def test_architecture_is_about_two_pages() -> None:
    page = text("ARCHITECTURE.md")
    assert len(page.splitlines()) <= LINES
    assert len(page.split()) <= WORDS


def test_files_folders_and_pages_are_counted() -> None:
    places = "`a/b.py`: `Name`; `c/d/`, docs/e.md. See README.md, `git grep f/g.py`, `s://h/i.py`"
    assert named(places) == ["README.md", "a/b.py", "c/d/", "docs/e.md"]
    assert not found_files("cdc/no_such_file.py")
    assert found_files("schemas/types_<kind>.py")
