"""A list of tables in a file or on stdin, for `onboard -f`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cdc.runtime.copy_sessions import CopyBudget
from operate.cli import app
from operate.context import Services
from operate.table_list import read_list
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("public.orders\npublic.lines\n", ["public.orders", "public.lines"]),
        ("# a comment\n\n  public.orders  \r\n\t# more", ["public.orders"]),
        ("public.orders # the big one\nshop:sales.*", ["public.orders", "shop:sales.*"]),
        ('public."odd # name" # really', ['public."odd # name"']),
        ('public."a""b#c"', ['public."a""b#c"']),
        ("public.c#\npublic.d#1 #x", ["public.c#", "public.d#1"]),
        ("\ufeffpublic.orders", ["public.orders"]),
        ("", []),
    ],
)
def test_a_line_has_one_name_and_perhaps_a_comment(text: str, names: Sequence[str]) -> None:
    assert read_list(text) == names


ORDERS, LINES = (TableId("shop", "public", name) for name in ("orders", "lines"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(minimal()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each call of `onboard`."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("operate.discover._of_sources", lambda *_: [LINES, ORDERS])

    def bring(services: Services, tables: Sequence[TableId], **more: Any) -> list[Any]:
        calls.append({"tables": list(tables), "budget": services.copy_budget, **more})
        return []

    monkeypatch.setattr("operate.onboard.onboard", bring)
    return calls


def test_a_list_and_arguments_go_together(folder: Path, asked: list[dict[str, Any]]) -> None:
    (folder / "tables.txt").write_text("public.lines  # small\npublic.o*\n")
    run = ["onboard", "public.orders", "-f", "tables.txt", "--sessions", "4", "--mb-per-s", "50"]
    assert CliRunner().invoke(app, run).exit_code == 0
    assert asked == [
        {
            "tables": [ORDERS, LINES],
            "budget": CopyBudget(sessions=4, mb_per_s=50),
            "with_bootstrap": True,
            "by_wildcard": frozenset(),
            "in_bulk": {LINES},
            "again": False,
        }
    ]


def test_a_dash_is_stdin(folder: Path, asked: list[dict[str, Any]]) -> None:
    assert CliRunner().invoke(app, ["onboard", "-f", "-"], input="public.o*\n").exit_code == 0
    assert [call["tables"] for call in asked] == [[ORDERS]]
    assert asked[0]["by_wildcard"] == asked[0]["in_bulk"] == {ORDERS}


def test_a_schedule_that_names_tables_decides_nothing_about_them(
    folder: Path, asked: list[dict[str, Any]]
) -> None:
    """The default DAG of Airflow names the tables of tributary.yaml each night."""
    command = ["onboard", "--scheduled", "public.orders"]
    assert CliRunner().invoke(app, command).exit_code == 0
    (call,) = asked
    assert (call["by_wildcard"], call["in_bulk"]) == (frozenset(), {ORDERS})


def test_only_a_command_that_no_schedule_repeats_brings_all_offboarded_tables_back(
    folder: Path, asked: list[dict[str, Any]]
) -> None:
    for options in ([], ["--again"]):
        assert CliRunner().invoke(app, ["onboard", *options, "public.*"]).exit_code == 0
    assert [call["again"] for call in asked] == [False, True]
    refused = CliRunner().invoke(app, ["onboard", "--again", "--scheduled", "public.*"])
    assert (refused.exit_code, len(asked)) == (2, 2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"# nothing\n", "name a table"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_list_without_tables_is_refused(
    folder: Path, asked: list[dict[str, Any]], content: bytes | None, says: str
) -> None:
    if content is not None:
        (folder / "tables.txt").write_bytes(content)
    found = CliRunner().invoke(app, ["onboard", "-f", "tables.txt"])
    assert found.exit_code == 2
    assert says in found.output
    assert asked == []
