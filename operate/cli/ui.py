"""``ui`` and ``report``: the fleet as a page, served or in a file."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.metrics import LOOPBACK
from operate.render import Output, Renderer
from operate.ui import CACHE_S, PORT


def register(app: typer.Typer) -> None:
    """Add ``ui`` and ``report`` to the command ``tributary``."""
    app.command()(ui)
    app.command()(report)


def ui(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 chooses a free one.")
    ] = PORT,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen at; others need --token.")
    ] = LOOPBACK,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="REFERENCE",
            help="The token that viewers give as the password: '${NAME}' for a variable,"
            " '${file:/path}' for a file.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            help="A name under which viewers reach this server. Requests with other names are"
            " refused. It can be repeated.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        float,
        typer.Option("--cache", min=0.0, help="Seconds for which facts are shown again."),
    ] = CACHE_S,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Serve a page of the fleet at http://HOST:PORT until stopped (Ctrl-C), without Spark.

    The page shows tables, copies, sources, history, checks and complete periods; it is read-only.
    The server has no TLS. To serve the page to other machines, put a proxy with TLS before it.
    """
    from cdc.config import load
    from operate.ui.serving import Place, serving

    renderer = Renderer(output)
    place = Place(host, port, tuple(name or ()), token)
    with serving(load(config), place, cache_s=cache) as at:
        shown = f"[{host}]" if ":" in host else host
        renderer.document({"ui": f"http://{shown}:{at}/"})
        renderer.line(f"The page is at http://{shown}:{at}/")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def report(
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="The file to write, in one step.")
    ],
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Write the page of the fleet to one file, which needs no server and no network."""
    from operate.context import services
    from operate.ui.report import write_report

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        written = write_report(opened, html)
    renderer.document(written)
    renderer.line(
        f"Wrote {written.path}: {written.tables:,} tables, {written.troubles:,} of what needs"
        " attention"
    )
