"""``tributary export``: describes the tables for other programs."""

from __future__ import annotations

from typing import Annotated

import typer
import yaml

from operate.cli.chosen_tables import SomeTablesArgument
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.render import Output, Renderer

app = typer.Typer(help="Describe the tables for other programs.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the group ``export`` to the command ``tributary``."""
    parent.add_typer(app, name="export")


@app.callback()
def export() -> None:
    """Describe the tables for other programs."""


@app.command("dbt-sources")
def dbt_sources(
    tables: SomeTablesArgument = None,
    with_utils: Annotated[
        bool, typer.Option("--dbt-utils", help="Also tests that need the package dbt_utils.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Print sources of dbt 1.10.5 or later, in YAML, for the tables that readers see.

    A table's freshness in dbt comes from the table's freshness target and checks of freshness. The
    tests in dbt come from the table's other checks.
    """
    from operate.context import services
    from operate.dbt_sources import dbt_sources as describe
    from operate.discover import selected

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        chosen = set(selected(opened, tables or ()))
        records = [one for one in opened.store.tables() if one.table in chosen]
        found = describe(opened.config, records, with_utils=with_utils)
    renderer.document(found)
    if not renderer.json:
        typer.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), nl=False)
