"""The messages about the tables of one command, and the exit code of the command."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest
import typer

from cdc.errors import CaptureError
from cdc.store.table_state import State
from operate.cli.tables import _show_dry_run, finish
from operate.dryrun import Plan
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer
from operate.table_outcome import Outcome, exit_code_of, for_each, problems
from schemas.table import TableId

A, B, C = (TableId("shop", "public", name) for name in ("a", "b", "c"))
PLANNED, NEEDS_COPY = Outcome(A, "planned"), Outcome(B, "planned", State.NEEDS_BOOTSTRAP)


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


def offboarded(table: TableId) -> Outcome:
    return replace(refused(table, "was offboarded", left_out=True), offboarded=True)


def test_offboarded_tables_leave_nothing_to_do() -> None:
    """A repeated `onboard` of tables that were all offboarded would fail each night."""
    assert exit_code_of([offboarded(A), offboarded(B)]) is ExitCode.OK
    assert exit_code_of([offboarded(A), refused(B, left_out=True)]) is ExitCode.SOME_FAILED
    assert exit_code_of([offboarded(A)], strict=True) is ExitCode.SOME_FAILED
    assert exit_code_of([offboarded(A)], incomplete=True) is ExitCode.SOME_FAILED


@pytest.mark.parametrize(
    ("planned", "strict", "code"),
    [
        (Plan((), (refused(B, left_out=True),), (PLANNED,)), False, ExitCode.OK),
        (Plan((), (refused(B, left_out=True),), (PLANNED,)), True, ExitCode.SOME_FAILED),
        (Plan((), (), (PLANNED, NEEDS_COPY)), False, ExitCode.NEEDS_BOOTSTRAP),
        (Plan((), (offboarded(B),)), False, ExitCode.OK),
        (Plan((), (refused(B, left_out=True),)), False, ExitCode.SOME_FAILED),
        (Plan((), (refused(B),), (PLANNED,)), False, ExitCode.SOME_FAILED),
    ],
)
def test_a_dry_run_has_the_exit_code_of_the_command(
    planned: Plan, code: ExitCode, *, strict: bool
) -> None:
    """Also if the accepted tables need no step."""
    with pytest.raises(typer.Exit) if code else nullcontext() as ended:
        _show_dry_run(Renderer(), planned, (), strict=strict)
    assert ended is None or ended.value.exit_code == code


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


def many(count: int, action: str, **more: object) -> list[Outcome]:
    tables = (TableId("shop", "public", f"t_{number:04}") for number in range(count))
    return [Outcome(table, action, **more) for table in tables]  # type: ignore[arg-type]


def test_many_tables_are_summed_up_and_only_what_was_done_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So a schedule that repeats `onboard` gets a line for each new table only."""
    done = many(995, "is up to date", counted_as="already up to date", unchanged=True)
    new = Outcome(A, "copied 10 rows in 2 s", counted_as="copied", details={"notes": ["Big."]})
    odd = Outcome(B, "copied 5 rows in 1 s", counted_as="copied", details={"notes": ["Big."]})
    outcomes = [*done, new, odd, refused(C), refused(C, left_out=True)]
    with pytest.raises(typer.Exit) as ended:
        finish(Renderer(), outcomes)
    assert ended.value.exit_code == ExitCode.SOME_FAILED
    assert capsys.readouterr().out.splitlines() == [
        f"{A}: copied 10 rows in 2 s",
        f"{B}: copied 5 rows in 1 s",
        "note: Big.",
        f"  on {A}, {B}",
        "999 tables: 995 already up to date, 2 copied, 1 failed, 1 left out",
    ]


def test_a_few_tables_are_listed_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    finish(Renderer(), many(10, "is up to date", counted_as="up to date", unchanged=True))
    assert len(capsys.readouterr().out.splitlines()) == 10
    finish(Renderer(), many(11, "is up to date", counted_as="up to date", unchanged=True))
    assert capsys.readouterr().out == "11 tables: 11 up to date\n"


def test_a_signal_ends_the_waits_of_the_tables_in_work() -> None:
    """A copy can wait for its replica for hours, and the command waits for the copy."""
    stopped, began, ended = threading.Event(), threading.Barrier(2), list[TableId]()

    def work(table: TableId) -> Outcome:
        began.wait(20.0)
        assert stopped.wait(20.0), "nobody has ended this wait"
        ended.append(table)
        return Outcome(table, "ended")

    def interrupted(table: TableId) -> Outcome:
        began.wait(20.0)
        raise KeyboardInterrupt

    # The command waits for the outcomes in order: the signal comes while it waits for the first.
    works = {A: interrupted, B: work}
    with pytest.raises(KeyboardInterrupt):
        for_each(
            [A, B],
            lambda table: works[table](table),
            action="copy",
            parallel=2,
            interrupt=stopped.set,
        )
    assert ended == [B]
