"""``tributary quarantine``: lists, shows and replays records that runs left out of the lake."""

from __future__ import annotations

from typing import Annotated

import typer

from operate.cli.chosen_tables import SomeTablesArgument
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.cli.tables import finish
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer

_SHOWN_BYTES = 1024

app = typer.Typer(
    help="Records that tables left out since they could not be applied.",
    no_args_is_help=True,
)
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help=r"\[source:]schema.table")]


def register(parent: typer.Typer) -> None:
    """Add the group ``quarantine`` to the command ``tributary``."""
    parent.add_typer(app, name="quarantine")


@app.command("list")
def list_(
    tables: SomeTablesArgument = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """List the quarantined records of tables, each with the reason."""
    from operate.context import services
    from operate.discover import selected
    from operate.quarantined import kept, to_json

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        records = kept(opened, selected(opened, tables or ()))
    renderer.document({"records": [to_json(record) for record in records]})
    if not records:
        renderer.line("No record is in quarantine.")
        return
    renderer.table(
        ("table", "offset", "schema id", "bytes", "quarantined (UTC)", "reason"),
        [
            (
                record.table,
                record.offset,
                record.schema_id,
                f"{record.size:,}",
                f"{record.quarantined_at:%Y-%m-%d %H:%M:%S}",
                record.reason,
            )
            for record in records
        ],
        numbers="offset,schema id,bytes",
    )


@app.command()
def show(
    table: TableArgument,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show one quarantined record and its raw bytes.

    The bytes also contain the values of excluded, hashed and masked columns. In JSON output, the
    bytes are in base64.
    """
    from operate.context import services
    from operate.quarantined import hexdump, one, to_json

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        record = one(opened, opened.config.table_id(table), offset)
    renderer.document(to_json(record, with_bytes=True))
    for name, value in to_json(record).items():
        renderer.line(f"{name:<15} {'-' if value is None else value}")
    for name, data in (("key", record.key), ("value", record.value)):
        renderer.line(f"{name}: {'none' if data is None else f'{len(data):,} bytes'}")
        for line in hexdump(data or b"", _SHOWN_BYTES):
            renderer.line(f"  {line}")


@app.command()
def replay(
    table: TableArgument,
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="Replay only the records from this offset on."),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Apply the quarantined records that can be read now, and all later changes of their rows.

    If the topic no longer has all changes from the first of these records on, the command fails.
    """
    from operate.context import services
    from operate.quarantined import replay as bring_back
    from operate.table_outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            [opened.config.table_id(table)],
            lambda wanted: bring_back(opened, wanted, first=offset),
            action="replay",
        )
    finish(renderer, outcomes)
    if any(outcome.details.get("left_out") for outcome in outcomes):
        raise typer.Exit(ExitCode.SOME_FAILED)
