"""``complete``: says which hours or days of a table are complete, or waits for one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer

if TYPE_CHECKING:
    from cdc.store.announcements import Announcement
    from operate.periods import PeriodAnswer


def register(app: typer.Typer) -> None:
    """Add the command ``complete`` to the command ``tributary``."""
    app.command()(complete)


def _wait_option_s(text: str | None) -> float:
    """Return the duration of the option ``--wait`` in seconds; 0 without the option."""
    from cdc.config.value_types import seconds_of

    if text is not None and not re.fullmatch(r"[1-9][0-9]{0,5}[smhd]", text):
        raise typer.BadParameter(
            f"{text!r} is no duration such as 90s, 30m or 2h", param_hint="--wait"
        )
    return 0.0 if text is None else float(seconds_of(text))


def complete(
    table: Annotated[str, typer.Argument(metavar="TABLE", help=r"\[source:]schema.table")],
    period: Annotated[
        str | None,
        typer.Argument(
            metavar="PERIOD",
            help="An hour such as 2026-11-23T10 or a day such as 2026-11-23, in the zone of the"
            " table's setting completeness. Without it, all announced periods are listed.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait",
            metavar="DURATION",
            help="Wait until the period is complete or cannot become so, but no longer than this:"
            " 90s, 30m, 2h.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show whether an hour or a day of a table is complete; with --wait, wait until it is.

    Exit code 0: the period is complete. 1: it is not complete yet. 4: it cannot become complete,
    since the table needs a bootstrap. Runs announce the periods of tables with the setting
    completeness.
    """
    from cdc.store.completeness import UnknownPeriodError
    from operate.context import services
    from operate.periods import announced, calendar_of, wait_for_period

    seconds, renderer = _wait_option_s(wait), Renderer(output)
    if period is None and wait is not None:
        raise typer.BadParameter("needs a period", param_hint="--wait")
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = opened.config.table_id(table)
        if period is None:
            _show_announced(renderer, str(wanted), announced(opened, wanted))
            return
        try:
            chosen = calendar_of(opened, wanted).parse(period)
        except UnknownPeriodError as error:
            raise typer.BadParameter(str(error), param_hint="PERIOD") from None
        answer = wait_for_period(opened, wanted, chosen, timeout_s=seconds)
    _show_answer(renderer, answer)


def _show_answer(renderer: Renderer, answer: PeriodAnswer) -> None:
    """Print whether a period is complete, and end with the exit code that says so."""
    from operate.periods import Completion

    code = {Completion.COMPLETE: ExitCode.OK, Completion.CANNOT: ExitCode.NEEDS_BOOTSTRAP}
    renderer.document(answer.to_json())
    if answer.completion is Completion.COMPLETE:
        one = answer.announcement
        since = "" if one is None else f" since {one.announced_at:%Y-%m-%d %H:%M:%S} UTC"
        late = "" if one is None or not one.late_rows else f", {one.late_rows:,} late rows"
        renderer.line(
            f"{answer.period.name} of {answer.table} is complete{since}{late}", style="green"
        )
        return
    renderer.line(
        f"{answer.period.name} of {answer.table}: {answer.completion.value}: {answer.reason}",
        style="yellow",
    )
    if answer.remedy is not None:
        renderer.line(f"  What to do: {answer.remedy}")
    raise typer.Exit(code.get(answer.completion, ExitCode.ERROR))


def _show_announced(renderer: Renderer, table: str, found: list[Announcement]) -> None:
    """Print the announced periods of a table."""
    renderer.document({"table": table, "periods": [one.to_json() for one in found]})
    if not found:
        renderer.line(f"No period of {table} was announced as complete yet.")
        return
    heads = ("period", "announced (UTC)", "watermark (UTC)", "revision", "late rows", "last late")
    rows = [
        (
            one.name,
            f"{one.announced_at:%Y-%m-%d %H:%M:%S}",
            f"{one.proven:%Y-%m-%d %H:%M:%S}",
            one.revision,
            f"{one.late_rows:,}",
            one.late_instant,
        )
        for one in found
    ]
    renderer.table(heads, rows, numbers="revision,late rows")
