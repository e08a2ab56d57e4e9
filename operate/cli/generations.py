"""``generations``: lists the copies of a table in the lake, and removes unneeded ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.render import Output, Renderer, size

if TYPE_CHECKING:
    from cdc.lake.generations import Generation

app = typer.Typer(
    name="generations", help="The copies of a table in the lake.", no_args_is_help=True
)
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help=r"\[source:]schema.table")]


def register(parent: typer.Typer) -> None:
    """Add the group ``generations`` to the command ``tributary``."""
    parent.add_typer(app)


@app.command("list")
def list_(
    table: TableArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """List all generations of a table: serving, being built, former, abandoned or other.

    A generation that is listed as `other` belongs to another installation, and `remove` keeps it.
    """
    from operate.context import services
    from operate.generations import look

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = opened.config.table_id(table)
        found = look(opened, wanted)
    renderer.document({"table": wanted, "generations": _generations_json(found)})
    if not found:
        renderer.line(f"{wanted} has no generation in the lake.")
        return
    renderer.table(
        ("generation", "attempt", "is", "published (UTC)", "size"),
        [
            (
                one.number,
                one.attempt,
                one.kind.value,
                None if one.published_at is None else f"{one.published_at:%Y-%m-%d %H:%M:%S}",
                size(one.size_bytes),
            )
            for one in found
        ],
        numbers="generation,size",
    )


@app.command()
def remove(
    table: TableArgument,
    generation: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GENERATION]...",
            help="The number of a generation, or the beginning of its attempt. Without it: all"
            " beyond retain_generations, and all abandoned ones.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Remove former and abandoned generations. The serving generation is never removed.

    If GENERATION names a generation that is still being built, its build is given up. After an
    interruption, the same command continues.
    """
    from operate.context import services
    from operate.generations import remove as drop

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = opened.config.table_id(table)
        done = drop(opened, wanted, generation or ())
    renderer.document(
        {
            "table": wanted,
            "removed": _generations_json(done.removed),
            "generations": _generations_json(done.left),
        }
    )
    for one in done.removed:
        renderer.line(
            f"removed {one.kind.value} generation {one.number or 'unknown'}, attempt {one.attempt},"
            f" {size(one.size_bytes)}"
        )
    if not done.removed:
        renderer.line(f"{wanted} has no generation to remove.")


def _generations_json(found: Iterable[Generation]) -> list[dict[str, Any]]:
    """Return the JSON objects that ``generations list`` prints."""
    return [
        {
            "generation": one.number,
            "attempt": one.attempt,
            "kind": one.kind.value,
            "published_at": one.published_at,
            "bytes": one.size_bytes,
        }
        for one in found
    ]
