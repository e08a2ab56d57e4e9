"""``tributary checks``: lists and executes the checks of tables' data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.chosen_tables import SomeTablesArgument
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.cli.tables import show_problems
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer

if TYPE_CHECKING:
    from operate.check_status import CheckStatus

app = typer.Typer(help="Checks of the tables' data, from tributary.yaml.", no_args_is_help=True)
_STYLES = {"passed": "green", "failed": "bold red", "error": "bold red", "skipped": "yellow"}


def register(parent: typer.Typer) -> None:
    """Add the group ``checks`` to the command ``tributary``."""
    parent.add_typer(app, name="checks")


@app.command("list")
def list_(
    tables: SomeTablesArgument = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """List the checks of tables, with their newest outcomes and whether they are due."""
    from operate.context import services
    from operate.data_checks.command import known_checks
    from operate.discover import selected

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found = known_checks(opened, selected(opened, tables or ()))
    renderer.document(
        {
            "checks": [
                {"table": str(table), **one.to_json()}
                for table, ones in found.items()
                for one in ones
            ]
        }
    )
    rows = [(table, *_check_row(one)) for table, ones in found.items() for one in ones]
    if not rows:
        renderer.line("No table has a check. `checks` in tributary.yaml has them: docs/checks.md")
        return
    heads = ("table", "check", "kind", "policy", "due", "last (UTC)", "outcome", "detail")
    renderer.table(heads, rows)


def _check_row(one: CheckStatus) -> tuple[object, ...]:
    """Return the row of a check in the table that ``checks list`` prints."""
    newest = None if one.record is None else one.record.newest
    due = "yes" if one.due else "no" if one.settings.scheduled else "never by itself"
    return (
        *(one.name, one.settings.kind, one.settings.policy, due),
        None if newest is None else f"{newest.finished_at:%Y-%m-%d %H:%M:%S}",
        None if newest is None else newest.outcome,
        None if newest is None else newest.detail,
    )


@app.command("run")
def run(
    tables: SomeTablesArgument = None,
    due: Annotated[
        bool, typer.Option("--due", help="Only the checks that are due; this is the default.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All checks, whether they are due or not.")
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Only checks of this name, whether they are due or not. It can be repeated.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Execute the due checks of tables, and keep the results; --all and --name choose others.

    Exit code 3: a check with the policy alarm or pause failed, or a check did not work. Spark is
    started only if a check needs it.
    """
    from operate.context import services
    from operate.data_checks.command import Wanted, run_checks
    from operate.discover import selected

    if due + everything + bool(name) > 1:
        raise typer.BadParameter("give only one of --due, --all and --name", param_hint="--due")
    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = Wanted(everything, frozenset(name or ()))
        found = run_checks(opened, selected(opened, tables or ()), wanted)
    renderer.document(
        {
            "results": [result.to_json() for result in found.results],
            "tables": [outcome.to_json() for outcome in found.outcomes],
        }
    )
    for result in found.results:
        renderer.line(
            f"{result.table}: {result.check}: {result.outcome}: {result.detail}",
            style=_STYLES[result.outcome],
        )
    if not found.results and not found.outcomes:
        renderer.line("No check is due.")
    for outcome in found.outcomes:
        if outcome.error is None:
            renderer.line(f"{outcome.table}: {outcome.action}", style="yellow")
    show_problems(renderer, found.outcomes)
    if found.failed:
        raise typer.Exit(ExitCode.SOME_FAILED)
