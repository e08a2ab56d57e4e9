"""``tributary demo``: replicates a small shop on this machine, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from operate.cli.options import OutputOption, SourceKindOption, VerboseOption
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer


def register(app: typer.Typer) -> None:
    """Add the command ``demo`` to the command ``tributary``."""
    app.command()(demo)


def demo(
    source: Annotated[
        SourceKindOption, typer.Option("--source", help="The kind of database that holds the shop.")
    ] = SourceKindOption.POSTGRES,
    s3: Annotated[
        bool,
        typer.Option(
            "--s3", help="Put the lake on an S3-compatible server, which keeps it in memory."
        ),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the servers running afterwards.")
    ] = False,
    folder: Annotated[
        Path,
        typer.Option(
            "--dir",
            help="Folder of servers, configuration, state and lake. Data of an earlier demo in it"
            " is deleted.",
        ),
    ] = Path(".tributary/demo"),
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration file to write. Default: tributary.yaml in the folder.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Start all servers, onboard a shop under writes, change rows, run, and verify."""
    from operate.demo.kinds import SHOPS
    from operate.demo.story import Demo

    renderer = Renderer(output)
    with renderer.progress() as progress:
        shop = SHOPS[source.value]
        story = Demo(folder, renderer, progress, shop=shop, config=config, s3=s3)
        results = story.run(keep=keep)
    renderer.document(results.to_json())
    if not results.ok:
        raise typer.Exit(ExitCode.ERROR)
