"""``lineage``: sends OpenLineage events of runs, copies and schema changes."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime, timezone
from typing import Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.render import Output, Renderer

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Send again what happened since a duration such as 90m, 24h or 7d, or a time such as"
        " 2026-03-01T12:00 (UTC without a time zone), and what was not sent yet. Without it, only"
        " what was not sent yet.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command ``lineage`` to the command ``tributary``."""
    app.command()(lineage)


def lineage(
    since: SinceOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what happens, until stopped (Ctrl-C).")
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.1, help="Seconds between two looks, with --follow."),
    ] = 5.0,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            envvar="OPENLINEAGE_NAMESPACE",
            help="Namespace of the jobs. What was sent is remembered for each namespace.",
        ),
    ] = "tributary",
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Also messages of errors, which can quote values of rows."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the events, one a line, and send nothing."),
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Send OpenLineage events of runs, copies and schema changes from the history.

    OPENLINEAGE_URL or openlineage.yml names the receiver, as for each OpenLineage client. Each
    event is sent at least once. An event that is sent again has the same run id as before.
    """
    from operate.context import services
    from operate.history import moment
    from operate.lineage.sending import Lineage, Wanted

    renderer, ended = Renderer(output), threading.Event()
    try:
        at = None if since is None else moment(since, datetime.now(timezone.utc))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
    wanted = Wanted(namespace, messages=messages)
    with renderer.progress() as progress, services(config, progress) as opened:
        sender = Lineage(opened, wanted, since=at)
        if dry_run:
            for text in sender.shown():
                typer.echo(text)
            return
        if follow:
            with suppress(KeyboardInterrupt):
                for sent in sender.follow(interval, ended):
                    _show_sent_events(renderer, sent)
            return
        _show_sent_events(renderer, sender.send())


def _show_sent_events(renderer: Renderer, sent: int) -> None:
    """Print how many OpenLineage events the command has sent."""
    renderer.document({"events": sent})
    renderer.line(f"Sent {sent:,} event{'' if sent == 1 else 's'}.")
