"""The command ``tributary``: parses arguments, calls the operations, and prints results."""

from __future__ import annotations

import importlib.metadata
import signal
from types import FrameType
from typing import Annotated

import typer

from cdc.runtime.jvm_guard import end_soon
from operate.cli import (
    checks,
    complete,
    demo,
    export,
    generations,
    history,
    lineage,
    metrics,
    operations,
    project,
    quarantine,
    readers,
    schema,
    stack,
    status,
    tables,
    ui,
)
from operate.cli.options import Commands
from operate.signals import handle_ends, leave_terminal

app = typer.Typer(
    name="tributary",
    cls=Commands,
    help="Replicate PostgreSQL, MySQL and MariaDB tables to Apache Hudi, with an exact handoff.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Each module of commands imports heavy packages (Spark, drivers) inside its functions, so that
# `tributary --help` and completion stay quick.
for _module in (
    *(
        project,
        tables,
        generations,
        operations,
        status,
        complete,
        history,
        schema,
        quarantine,
        checks,
        export,
        readers,
        lineage,
        metrics,
        ui,
        stack,
        demo,
    ),
):
    _module.register(app)


def _show_version(value: bool) -> None:
    """Print the version for the option ``--version``, and end the command."""
    if value:
        typer.echo(f"tributary {importlib.metadata.version('tributary-cdc')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Replicate PostgreSQL, MySQL and MariaDB tables to Apache Hudi, with an exact handoff."""


def main() -> None:
    """Run the command line ``tributary``."""
    # Without a handler, SIGTERM or SIGHUP would end the process at once. Its leases would then
    # block other processes until they expire, a first `onboard` would leave its slot, and the
    # demo's servers would keep running.
    handle_ends(_end_command)
    app(prog_name="tributary")


def _end_command(number: int, frame: FrameType | None) -> None:
    """End the command ``tributary`` at a signal, by an exception.

    If the command then still waits for Spark, a timer kills Spark's JVM after a grace period. That
    ends the wait.
    """
    leave_terminal(number)
    end_soon()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
