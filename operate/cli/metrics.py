"""``metrics``: serves metrics to Prometheus, or writes them to a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.exit_codes import ExitCode
from operate.metrics import CACHE_S, LOOPBACK, PORT
from operate.render import Output, Renderer

if TYPE_CHECKING:
    from operate.context import Services

app = typer.Typer(
    name="metrics",
    help="Metrics for Prometheus: over HTTP, or in a file for the node exporter.",
    invoke_without_command=True,
)
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        metavar="PORT",
        help="With --continuous: also serve metrics for Prometheus at this port.",
        show_default=False,
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option("--metrics-host", metavar="ADDRESS", help="Where --metrics-port listens.")
]


def register(parent: typer.Typer) -> None:
    """Add the group ``metrics`` to the command ``tributary``."""
    parent.add_typer(app)


@contextmanager
def metrics_of_run(run: Services, host: str, port: int | None) -> Iterator[None]:
    """Serve metrics while ``run`` executes a ``with`` block; do nothing without --metrics-port.

    Raises:
        ConfigError: The address or port cannot be used.
    """
    if port is None:
        yield
        return
    from operate.metrics.exposing import serving

    with serving(run.config, host=host, port=port, rounds=run.rounds):
        yield


@app.callback()
def metrics(
    context: typer.Context,
    textfile: Annotated[
        Path | None,
        typer.Option(
            "--textfile",
            metavar="FILE",
            help="Write the metrics once to this file, in one step. The node exporter wants .prom.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Metrics for Prometheus; docs/observe.md lists them.

    With --textfile, exit code 1 and a metric in the file show that the state store did not answer.
    """
    from operate.context import services
    from operate.metrics.exposing import write_file

    if context.invoked_subcommand is not None:
        if textfile is not None:
            raise typer.BadParameter("name no command beside it", param_hint="--textfile")
        return
    if textfile is None:
        raise typer.BadParameter(
            "name a FILE; or use `tributary metrics serve`", param_hint="--textfile"
        )
    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        complete = write_file(opened, textfile)
    renderer.document({"textfile": str(textfile), "complete": complete})
    renderer.line(f"Wrote {textfile}")
    if not complete:
        raise typer.Exit(ExitCode.ERROR)


@app.command()
def serve(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 chooses a free one.")
    ] = PORT,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen at; others must reach it.")
    ] = LOOPBACK,
    cache: Annotated[
        float,
        typer.Option("--cache", min=0.0, help="Seconds for which facts are shown again."),
    ] = CACHE_S,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Serve metrics at http://HOST:PORT/metrics until stopped (Ctrl-C), without Spark.

    The server has no login and no TLS. To serve metrics to other machines, put a proxy with login
    and TLS before it. Labels have names of sources, tables and tiers, never values of rows.
    """
    from cdc.config import load
    from operate.metrics.exposing import serving

    renderer = Renderer(output)
    with serving(load(config), host=host, port=port, cache_s=cache) as at:
        renderer.document({"metrics": f"http://{host}:{at}/metrics"})
        renderer.line(f"Metrics are at http://{host}:{at}/metrics")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
