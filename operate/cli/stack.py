"""``tributary stack``: runs databases, Kafka, Connect and a registry on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.options import OutputOption, SourceKindOption, VerboseOption
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer

if TYPE_CHECKING:
    from stack.local import LocalStack
    from stack.servers import ServerStatus

_FOLDER = Path(".tributary/stack")
_CONFIG = Path("tributary.yaml")


app = typer.Typer(
    help="Databases with replicas, Kafka, Connect and a schema registry on this machine.",
    no_args_is_help=True,
)
FolderOption = Annotated[
    Path, typer.Option("--dir", metavar="FOLDER", help="Folder of all data, logs and secrets.")
]

StackConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file for this stack; `up` writes it if it is missing.",
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the group ``stack`` to the command ``tributary``."""
    parent.add_typer(app, name="stack")


@app.command()
def up(
    folder: FolderOption = _FOLDER,
    source: Annotated[
        list[SourceKindOption] | None,
        typer.Option(
            "--source",
            help="Kind of source to add, for this and later starts; may be repeated. Without it, a"
            " new stack has PostgreSQL.",
        ),
    ] = None,
    metastore: Annotated[
        bool, typer.Option("--metastore", help="Add a Hive Metastore, for this and later starts.")
    ] = False,
    s3: Annotated[
        bool,
        typer.Option(
            "--s3",
            help="Add an S3-compatible server that holds the lake, for this and later starts. It"
            " keeps objects in memory: they are gone when it stops.",
        ),
    ] = False,
    trino: Annotated[
        bool,
        typer.Option(
            "--trino",
            help="Add a Trino that reads the tables by their names in a Hive Metastore, for this"
            " and later starts. Its download has 800 MB.",
        ),
    ] = False,
    config: StackConfigOption = _CONFIG,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Start the servers that do not run, wait until all are ready, and write a configuration."""
    renderer = Renderer(output)
    stack = _stack_in_folder(folder)
    ours = stack.wrote(config)
    asked = {"metastore": metastore, "s3": s3, "trino": trino}
    optional = [name for name, wanted in asked.items() if wanted]
    servers = stack.up(
        renderer.note, sources=[kind.value for kind in source or ()], optional=optional
    )
    if stack.write_config(config):
        renderer.note(f"wrote {config}")
    elif ours and not stack.wrote(config):
        config.write_text(stack.config_text(), "utf-8")
        renderer.note(f"rewrote {config}, since sources or ports have changed")
    elif not stack.wrote(config):
        renderer.note(
            f"{config} has other content and was not changed; `tributary stack env` prints the"
            " addresses"
        )
    _show_servers(renderer, servers)


@app.command()
def down(
    folder: FolderOption = _FOLDER,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Also remove data, logs, secrets, and the configuration if unchanged."
        ),
    ] = False,
    config: StackConfigOption = _CONFIG,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Stop every server."""
    renderer = Renderer(output)
    stack = _stack_in_folder(folder)
    if delete and stack.remove_config(config):
        renderer.note(f"removed {config}")
    stack.down(delete=delete, report=renderer.note)
    renderer.document({"folder": stack.folder, "deleted": delete})


@app.command()
def status(
    folder: FolderOption = _FOLDER,
    config: StackConfigOption = _CONFIG,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show each server's port, process, memory and state; exit code 1 if any is not healthy."""
    renderer, stack = Renderer(output), _stack_in_folder(folder)
    servers = stack.status()
    _show_servers(renderer, servers)
    if servers and not stack.wrote(config):
        problem = "differs from the file that" if config.is_file() else "is missing;"
        writes = "writes" if config.is_file() else "writes it"
        renderer.note(f"{config} {problem} `tributary stack up` {writes} for this stack")
    if not servers or any(server.state != "healthy" for server in servers):
        raise typer.Exit(ExitCode.ERROR)


@app.command()
def env(
    folder: FolderOption = _FOLDER,
    config: StackConfigOption = _CONFIG,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Print the addresses as shell exports, for eval "$(tributary stack env)"."""
    renderer = Renderer(output)
    values = _stack_in_folder(folder).env()
    if config.is_file():
        # With this variable, commands find their configuration from any folder.
        values["TRIBUTARY_CONFIG"] = str(config.resolve())
    renderer.document(values)
    for name, value in values.items():
        renderer.line(f"export {name}={shlex.quote(value)}")


def _stack_in_folder(folder: Path) -> LocalStack:
    """Return the local stack in the folder that a command's option names."""
    # Imported here, since the packages that run servers are an extra that can be missing.
    from stack.local import LocalStack

    return LocalStack(folder)


def _show_servers(renderer: Renderer, servers: list[ServerStatus]) -> None:
    """Print the servers of a stack, as ``stack up`` and ``stack status`` do."""
    renderer.document(servers)
    if not servers:
        renderer.line("There is no stack in this folder. Start one with `tributary stack up`.")
        return
    renderer.table(
        ("server", "port", "pid", "memory", "state"),
        [
            (
                server.name,
                server.port,
                server.pid,
                f"{server.memory_bytes / 2**20:.0f} MiB" if server.pid else None,
                server.state,
            )
            for server in servers
        ],
        numbers="port,pid,memory",
    )
    for server in servers:
        if server.detail:
            renderer.line(f"{server.name}: {server.detail}")
