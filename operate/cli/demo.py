"""``tributary demo``: the whole journey on this machine, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from operate.cli.options import OutputOption, VerboseOption
from operate.cli.stack import SourceKind
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    source: Annotated[
        SourceKind, typer.Option("--source", help="The database that the shop is on.")
    ] = SourceKind.POSTGRES,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the servers up afterwards.")] = False,
    folder: Annotated[
        Path,
        typer.Option(
            "--dir",
            help="Folder of servers, configuration, state and lake. A former demo's data in it is"
            " deleted.",
        ),
    ] = Path(".tributary/demo"),
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration to write; else tributary.yaml in the folder.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Start everything, onboard a shop that is being written to, change it, run, and verify."""
    from operate.demo.story import Demo

    renderer = Renderer(output)
    with renderer.progress() as progress:
        story = Demo(folder, renderer, progress, kind=source.value, config=config)
        told = story.run(keep=keep)
    renderer.document(told.to_json())
    if not told.ok:
        raise typer.Exit(ExitCode.ERROR)
