"""``history``: shows runs, schema changes and changes of states, and who made them."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.render import Output, Renderer

if TYPE_CHECKING:
    from operate.history import Event

_SHOWN_ID = 8
"""Number of characters of a run's identity in the text output; JSON output has all characters."""


class KindOption(str, Enum):
    """The kinds of events, as values of the command's option."""

    RUN = "run"
    SCHEMA = "schema"
    STATE = "state"


def register(app: typer.Typer) -> None:
    """Add the command ``history`` to the command ``tributary``."""
    app.command()(history)


def history(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help=r"\[source:]schema.table, or a quoted wildcard; without it, all tables, also those"
            " that left the plan.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Since when: a duration such as 90m, 24h or 7d, or a time such as"
            " 2026-03-01T12:00 (UTC without a time zone).",
        ),
    ] = "24h",
    kind: Annotated[
        list[KindOption] | None,
        typer.Option(
            "--kind",
            help="Only events of this kind. It can be repeated.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show runs, schema changes and changes of states, oldest first, and who made them.

    Each line names the user, the machine and the command, and the run's identity, which the lake's
    commits have, too. A table's newest 100 runs have a line each; older runs of one hour share a
    line if they ended alike. state.keep_history sets how long events are kept.
    """
    from operate.context import services
    from operate.discover import selected
    from operate.history import Kind, moment
    from operate.history import history as look

    renderer, now = Renderer(output), datetime.now(timezone.utc)
    try:
        at = moment(since, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
    with renderer.progress() as progress, services(config, progress) as opened:
        chosen = selected(opened, tables, retired=True) if tables else None
        events = look(opened, at, chosen, [Kind(one.value) for one in kind or ()])
        kept, keep_s = opened.config.state.keep_history, opened.config.state.keep_history_s
    renderer.document({"since": at, "history": [event.to_json() for event in events]})
    if (now - at).total_seconds() > keep_s:
        renderer.line(f"The state store keeps events for {kept} (state.keep_history).")
    if not events:
        renderer.line(f"Nothing has happened since {at:%Y-%m-%d %H:%M:%S %Z}.")
        return
    heads = ("when (UTC)", "table", "what", "who", "run")
    renderer.table(heads, [_event_row(event) for event in events])


def _event_row(event: Event) -> tuple[object, ...]:
    """Return the row of an event in the table that ``history`` prints."""
    when = event.at.astimezone(timezone.utc)
    run = None if event.run_id is None else event.run_id[:_SHOWN_ID]
    return f"{when:%Y-%m-%d %H:%M:%S}", event.table, event.what, event.by, run
