"""``tributary schema``: compares schemas, judges planned changes, and shows past changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, SourceKindOption, VerboseOption
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer
from schemas.changes import Verdict
from schemas.errors import DdlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.changes import Change

schema_app = typer.Typer(
    name="schema",
    help="Compare schemas, judge planned changes, show past changes.",
    no_args_is_help=True,
)


TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help=r"\[source:]schema.table", show_default=False)
]
_MEANING = {
    Verdict.IGNORE: "the lake is not touched",
    Verdict.EVOLVE: "the lake follows in place",
    Verdict.FILL: "the lake follows in place, and old rows get the new column's value",
    Verdict.BOOTSTRAP: "the table needs a bootstrap",
}
_STYLES = {Verdict.BOOTSTRAP: "bold red", Verdict.FILL: "yellow"}


def register(app: typer.Typer) -> None:
    """Add the group ``schema`` to the command ``tributary``."""
    app.add_typer(schema_app)


@schema_app.command("diff")
def diff(
    table: TableArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show the columns of source, registry and lake; exit code 4 if a bootstrap is needed."""
    from operate.context import services
    from operate.schema import difference

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found = difference(opened, opened.config.table_id(table))
    renderer.document(found.to_json())
    renderer.table(
        ("column", "source", "registry", "lake"),
        [(side.name, side.source, side.registry, side.lake) for side in found.columns],
    )
    _end_with_verdict(renderer, found.changes, found.verdict)


@schema_app.command("check")
def check(
    table: TableArgument,
    ddl: Annotated[
        str, typer.Option("--ddl", help="The planned statements, for example: alter table ...")
    ],
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show the effect of planned statements on the lake table, without running them.

    The exit code is 0 if the lake would follow the change, 4 if the table would need a bootstrap,
    and 2 if the statements cannot be parsed.
    """
    from operate.context import services
    from operate.schema import check as ask

    renderer = Renderer(output)
    try:
        with renderer.progress() as progress, services(config, progress) as opened:
            answer = ask(opened, opened.config.table_id(table), ddl)
    except DdlError as error:
        renderer.error(error)
        raise typer.Exit(ExitCode.USAGE) from None
    renderer.document(answer.to_json())
    _end_with_verdict(renderer, answer.changes, answer.verdict)


@schema_app.command("history")
def history(
    table: TableArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show a table's past schema changes, and whether the lake followed or the table stopped."""
    from operate.context import services
    from operate.schema import history as look

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        entries = look(opened, opened.config.table_id(table))
    renderer.document({"history": [entry.to_json() for entry in entries]})
    if not entries:
        renderer.line("The schema has not changed since the table was copied.")
        return
    renderer.table(
        ("generation", "version", "when (UTC)", "schema id before", "verdict", "outcome", "change"),
        [
            (
                entry.generation,
                entry.version,
                f"{entry.at:%Y-%m-%d %H:%M:%S}",
                ", ".join(str(one) for one in entry.schema_ids) or None,
                change.verdict.value,
                entry.outcome,
                change.what,
            )
            for entry in entries
            for change in entry.changes
        ],
        numbers="generation,version",
    )


@schema_app.command("types")
def types(
    kind: Annotated[
        SourceKindOption, typer.Option("--kind", help="The kind of source.")
    ] = SourceKindOption.POSTGRES,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown", help="Print it as the page docs/types.md or docs/types_mysql.md."
        ),
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Print the lake type of each source type, or the reason why the source type is refused."""
    from schemas import type_map, type_map_mysql

    renderer = Renderer(output)
    of_postgres = kind is SourceKindOption.POSTGRES
    entries = type_map.type_map() if of_postgres else type_map_mysql.type_map(kind.value)
    renderer.document({"kind": kind, "types": entries, "override": type_map.OVERRIDE})
    if renderer.json:
        return
    if markdown:
        page = type_map.as_markdown() if of_postgres else type_map_mysql.as_markdown()
        typer.echo(page, nl=False)
        return
    renderer.table(
        ("type", *(("topic",) if of_postgres else ()), "lake", "notes"),
        [
            (
                one.type,
                *((one.debezium,) if of_postgres else ()),
                one.lake or f"refused; see {type_map.OVERRIDE}",
                one.notes or None,
            )
            for one in entries
        ],
    )


def _end_with_verdict(renderer: Renderer, changes: Sequence[Change], verdict: Verdict) -> None:
    """Print schema changes and their verdict; exit with code 4 if the verdict is bootstrap."""
    for change in changes:
        style = _STYLES.get(change.verdict)
        renderer.line(f"{change.verdict.value:<10} {change}", style=style)
    renderer.line(f"Verdict: {_MEANING[verdict] if changes else 'no change'}.")
    if verdict is Verdict.BOOTSTRAP:
        raise typer.Exit(ExitCode.NEEDS_BOOTSTRAP)
