"""``tributary stack``: a real source side on this machine."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from stack.local import LocalStack
    from stack.servers import ServerStatus

app = typer.Typer(
    name="stack",
    help="PostgreSQL with a replica, Kafka, Connect and a schema registry on this machine.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Option("--dir", help="Folder of all data, logs and secrets.")]
Output = Annotated[Literal["text", "json"], typer.Option("--output", help="How to print.")]
_FOLDER = Path(".tributary/stack")


@app.command()
def up(
    folder: Folder = _FOLDER,
    config: Annotated[
        Path, typer.Option("--config", help="Configuration to write when there is none.")
    ] = Path("tributary.yaml"),
    output: Output = "text",
) -> None:
    """Start what does not run, wait until all is ready, and write a ready configuration."""
    stack = _stack(folder)
    servers = stack.up(_report)
    if stack.write_config(config):
        _report(f"wrote {config}")
    elif config.read_text("utf-8") != stack.config_text():
        _report(f"{config} is left as it is; compare its addresses with `tributary stack env`")
    _print_status(servers, output)


@app.command()
def down(
    folder: Folder = _FOLDER,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove all data, logs and secrets too.")
    ] = False,
) -> None:
    """Stop every server."""
    _stack(folder).down(delete=delete, report=_report)


@app.command()
def status(folder: Folder = _FOLDER, output: Output = "text") -> None:
    """Show every server's port, process, memory and health; exit code 1 unless all are healthy."""
    servers = _stack(folder).status()
    _print_status(servers, output)
    if not servers or any(server.state != "healthy" for server in servers):
        raise typer.Exit(1)


@app.command()
def env(folder: Folder = _FOLDER, output: Output = "text") -> None:
    """Print shell exports of the addresses: eval "$(tributary stack env)"."""
    values = _stack(folder).env()
    if output == "json":
        typer.echo(json.dumps(values, indent=2))
        return
    for name, value in values.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def _stack(folder: Path) -> LocalStack:
    # Imported here: the extra `stack` need not be installed where servers are not run.
    from stack.local import LocalStack

    return LocalStack(folder)


def _report(line: str) -> None:
    typer.echo(line, err=True)


def _print_status(servers: list[ServerStatus], output: str) -> None:
    if output == "json":
        typer.echo(json.dumps([asdict(server) for server in servers], indent=2))
        return
    if not servers:
        typer.echo("no stack here; start one with `tributary stack up`")
        return
    table = Table("server", "port", "pid", "memory", "state", box=None, pad_edge=False)
    for server in servers:
        memory = f"{server.memory_bytes / 2**20:.0f} MiB" if server.pid else "-"
        table.add_row(server.name, str(server.port), str(server.pid or "-"), memory, server.state)
    Console().print(table)
    for server in servers:
        if server.detail:
            typer.echo(f"{server.name}: {server.detail}")


if __name__ == "__main__":
    app()
