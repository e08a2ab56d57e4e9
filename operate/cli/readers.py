"""``readers``: shows what the registered readers of tables have read, and registers others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.chosen_tables import SomeTablesArgument, TiersOption, chosen
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.render import Output, Renderer, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from operate.readers import ReaderStatus

app = typer.Typer(
    name="readers",
    help="Readers of tables that say what they have read, and how far each is behind.",
    invoke_without_command=True,
)
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help=r"\[source:]schema.table")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The reader's name.")]


def register(parent: typer.Typer) -> None:
    """Add the group ``readers`` to the command ``tributary``."""
    parent.add_typer(app)


@app.callback()
def all_readers(
    context: typer.Context,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """List and register readers of tables; without a command: list the readers of all tables."""
    if context.invoked_subcommand is None:
        list_(None, None, config, output, verbose)


@app.command("list")
def list_(
    tables: SomeTablesArgument = None,
    tier: TiersOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """List the readers of tables: what each has read, its lag, and whether it can go on.

    The lag is the time since the newest commit that the reader has read; 0 if the reader has read
    the table's newest commit. Spark is not started: for a lake that is not on this machine, the
    command shows what the last run found.
    """
    from operate.context import services
    from operate.readers import readers

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = set(chosen(opened, tables, tier))
        records = [one for one in opened.store.tables() if not wanted or one.table in wanted]
        found = readers(opened, records, all_known=True)
    renderer.document({"readers": [one.to_json() for one in found]})
    if not found:
        renderer.line("No reader has recorded what it has read: see docs/readers_python.md.")
        return
    heads = ("table", "reader", "is", "commit read (UTC)", "lag", "limit", "recorded (UTC)")
    renderer.table(heads, [_reader_row(one) for one in found], numbers="lag,limit")
    show_late(renderer, found)


@app.command()
def record(
    table: TableArgument,
    name: NameArgument,
    instant: Annotated[
        str,
        typer.Option(
            "--instant",
            metavar="INSTANT",
            help="The commit up to which the reader has read the table: 17 digits, as readers see"
            " it in _hoodie_commit_time.",
        ),
    ],
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Record what a reader has read, for programs that do not use tributary_reader."""
    from operate.context import services
    from operate.readers import record as note

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found = note(opened, opened.config.table_id(table), name, instant)
    renderer.document(found.to_json())
    renderer.line(f"{found.table}: reader {name} has read commit {instant}")


@app.command()
def remove(
    table: TableArgument,
    name: NameArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Forget a reader that no longer reads the table.

    If the reader records again what it has read, it is registered again.
    """
    from operate.context import services
    from operate.readers import remove as drop

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = opened.config.table_id(table)
        removed = drop(opened, wanted, name)
    renderer.document({"table": wanted, "reader": name, "removed": removed})
    renderer.line(
        f"{wanted}: reader {name} is removed" if removed else f"{wanted} has no reader {name}."
    )


def show_late(renderer: Renderer, found: Iterable[ReaderStatus]) -> None:
    """Show the readers that are late, must read a whole table, or cannot be judged."""
    from operate.readers import Progress

    for one in found:
        who, state = f"{one.table}: reader {one.state.name}", one.state
        if one.progress is Progress.UNREADABLE:
            renderer.line(f"{who} is not known: {state.problem}", style="bold red")
        elif one.progress is Progress.LOST:
            renderer.line(
                f"{who} may have missed changes: what it needs of commit {state.instant} is"
                " cleaned, or the table was copied again",
                style="bold red",
            )
            renderer.line("  What to do: let it read the whole table once, and record that")
        elif one.late and one.unread_s is not None and one.target_s is not None:
            renderer.line(
                f"{who} has not read a commit that is {seconds(one.unread_s)} old; its limit is"
                f" {seconds(one.target_s)}",
                style="yellow",
            )


def _reader_row(one: ReaderStatus) -> tuple[object, ...]:
    """Return the row of a reader in the table that ``readers list`` prints."""
    state = one.state
    read, recorded = (
        None if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
        for at in (None if state.instant is None else state.read_at, state.recorded_at)
    )
    return (
        *(one.table, state.name, one.progress.value, read),
        None if one.lag_s is None else seconds(one.lag_s),
        None if one.target_s is None else seconds(one.target_s),
        recorded,
    )
