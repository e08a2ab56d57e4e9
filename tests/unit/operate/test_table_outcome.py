"""What is said of the tables of one command, and the exit code that it makes."""

from __future__ import annotations

import json

import pytest
import typer

from cdc.errors import CaptureError
from operate.cli.tables import finish
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer
from operate.table_outcome import Outcome, exit_code_of, problems
from schemas.table import TableId

A, B, C = (TableId("shop", "public", name) for name in ("a", "b", "c"))


def refused(table: TableId, why: str = "has no key", *, left_out: bool = False) -> Outcome:
    error = CaptureError(f"table {table} {why}", remedy=f"ALTER TABLE {table.relation} ...")
    return Outcome(table, "check", error=error, left_out=left_out)


def test_an_error_of_several_tables_is_shown_once_with_their_names() -> None:
    alike, other = problems([refused(A), refused(B), Outcome(C, "done"), refused(C, "is odd")])
    assert (alike.tables, alike.message) == ((A, B), "table <table> has no key")
    assert alike.remedy == "ALTER TABLE <table> ..."
    assert (other.tables, other.message) == ((C,), f"table {C} is odd")


def test_a_table_that_was_left_out_is_a_failure_only_where_that_is_asked_for() -> None:
    outcomes = [Outcome(A, "registered"), refused(B, left_out=True)]
    assert exit_code_of(outcomes) is ExitCode.OK
    assert exit_code_of(outcomes, strict=True) is ExitCode.SOME_FAILED
    assert exit_code_of([refused(B, left_out=True)]) is ExitCode.SOME_FAILED, "nothing was done"
    assert exit_code_of([]) is ExitCode.OK


def test_a_table_that_was_left_out_is_named_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = [Outcome(A, "registered"), refused(B, left_out=True)]
    finish(Renderer(), outcomes)
    written = capsys.readouterr()
    assert written.out == f"{A}: registered\n"
    assert f"Left out: table {B} has no key" in written.err
    assert f"What to do: ALTER TABLE {B.relation}" in written.err
    with pytest.raises(typer.Exit) as ended:
        finish(Renderer(Output.JSON), outcomes, strict=True)
    assert ended.value.exit_code == ExitCode.SOME_FAILED
    document = json.loads(capsys.readouterr().out)
    assert [one["table"] for one in document["tables"]] == [str(A)]
    (left,) = document["left_out"]
    assert (left["table"], left["error"]["message"]) == (str(B), f"table {B} has no key")
