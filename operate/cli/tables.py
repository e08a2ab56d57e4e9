"""The commands that choose and copy tables, such as discover, onboard and bootstrap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.runtime.copy_sessions import CopyBudget
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.exit_codes import ExitCode
from operate.render import Output, Renderer, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operate.dryrun import Plan
    from operate.table_outcome import Outcome
    from schemas.errors import TributaryError

_TABLES = typer.Argument(
    metavar="TABLE...",
    help=r"\[source:]schema.table, or a quoted wildcard (*, ?, [...]).",
    show_default=False,
)
TablesArgument = Annotated[list[str], _TABLES]
ListOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A list of tables and wildcards, one a line; # begins a comment. - is stdin.",
        show_default=False,
    ),
]


ScheduledOption = Annotated[
    bool,
    typer.Option(
        "--scheduled",
        help="A schedule repeats this command: tables that were offboarded stay so, and failed ones"
        " are left to `run`, also if they are named.",
    ),
]


AgainOption = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Also onboard tables that were offboarded, which wildcards, lists and the names of"
        " shared lake tables leave out.",
    ),
]


SessionsOption = Annotated[
    int | None,
    typer.Option(
        "--sessions",
        min=1,
        metavar="N",
        help="The most sessions in which copies read from a source at the same time. Default: its"
        " setting copy_sessions.",
        show_default=False,
    ),
]


RateOption = Annotated[
    int | None,
    typer.Option(
        "--mb-per-s",
        min=1,
        metavar="N",
        help="The most megabytes per second that copies read from a source together, on average."
        " Default: its setting copy_mb_per_s.",
        show_default=False,
    ),
]


NoBootstrapOption = Annotated[
    bool,
    typer.Option(
        "--no-bootstrap",
        help="Capture and register the tables; copy them later with `bootstrap`.",
    ),
]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take over what another installation has made for these tables: its connectors, and"
        " its generations in the lake. Only if that installation is gone for good, for example"
        " since its state store was lost.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the command ``tributary``."""
    app.command()(discover)
    app.command()(onboard)
    app.command()(bootstrap)
    app.command()(resync)
    app.command()(move)
    app.command()(offboard)
    app.command()(path)


def discover(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", show_default=False)
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="List only tables that are not on the plan.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """List tables of sources: rows, size, key, replica identity, whether they can be onboarded.

    Only the sources' catalogs are read, and only tables that are not on the plan are judged.
    `onboard --dry-run` also reads rows, to check their sizes and whether the key identifies each
    row. `check` examines the tables on the plan.
    """
    from operate.context import services
    from operate.discover import discover as look

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        alone = len(sources or opened.config.sources) == 1
        failed: dict[str, TributaryError] = {}
        entries = look(opened, sources or (), only_new=new, failed=None if alone else failed)
    renderer.document(
        {
            "tables": [entry.to_json() for entry in entries],
            "problems": [error.to_dict() for error in failed.values()],
        }
    )
    renderer.table(
        ("table", "rows", "size", "key", "identity", "verdict"),
        [
            (
                entry.stats.table,
                None
                if entry.stats.rows_estimate is None
                else f"about {entry.stats.rows_estimate:,}",
                size(entry.stats.total_bytes),
                ", ".join(entry.stats.primary_key) or None,
                entry.stats.replica_identity,
                entry.summary,
            )
            for entry in entries
        ],
        numbers="rows,size",
    )
    refused = sum(entry.refusal is not None and entry.state is None for entry in entries)
    if refused:
        renderer.line(
            f"{refused} of {len(entries)} tables cannot be onboarded as they are; `tributary"
            " onboard TABLE --dry-run` prints what to change."
        )
    show_problems(renderer, (), list(failed.values()))
    if failed:
        raise typer.Exit(ExitCode.SOME_FAILED)


def onboard(
    tables: Annotated[list[str] | None, _TABLES] = None,
    file: ListOption = None,
    no_bootstrap: NoBootstrapOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps, and change nothing.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit code 3 also if a wildcard leaves a table out."),
    ] = False,
    take_over: TakeOverOption = False,
    again: AgainOption = False,
    scheduled: ScheduledOption = False,
    sessions: SessionsOption = None,
    mb_per_s: RateOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Capture tables, copy them from the replica, and hand them over to the stream.

    The command can be repeated, for example by a schedule: it then takes the tables that are new,
    and goes on with copies that were interrupted. The largest tables are copied first. If a table
    cannot be onboarded, the command prints the reason. The table counts as failed if it is named,
    and as left out if only a wildcard matches it.
    """
    from operate.context import services
    from operate.discover import at_source
    from operate.onboard import onboard as bring

    listed = _read_list_file(file)
    _require_usable([*(tables or ()), *listed], again=again, scheduled=scheduled)
    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        opened.copy_budget = CopyBudget(sessions, mb_per_s)
        opened.take_over = take_over
        wanted = at_source(opened, tables or (), listed, scheduled=scheduled)
        if dry_run:
            from operate.dryrun import onboarding_steps

            planned = onboarding_steps(
                opened,
                wanted.tables,
                with_bootstrap=not no_bootstrap,
                by_wildcard=wanted.by_wildcard,
                in_bulk=wanted.in_bulk,
                again=again,
            )
            _show_dry_run(renderer, planned, wanted.problems, strict=strict)
            return
        outcomes = bring(
            opened,
            wanted.tables,
            with_bootstrap=not no_bootstrap,
            by_wildcard=wanted.by_wildcard,
            in_bulk=wanted.in_bulk,
            again=again,
        )
    finish(renderer, outcomes, strict=strict, problems=wanted.problems)


def _require_usable(arguments: Sequence[str], *, again: bool, scheduled: bool) -> None:
    """Refuse wrong usage of ``onboard``: no table at all, or options that contradict each other."""
    if not arguments:
        raise typer.BadParameter("name a table, or a list of tables with -f", param_hint="TABLE")
    if again and scheduled:
        why = "a schedule that repeats this command must not bring offboarded tables back"
        raise typer.BadParameter(f"{why}; leave --scheduled out", param_hint="--again")


def _read_list_file(file: Path | None) -> list[str]:
    """Return the names and wildcards in the file of the option ``--file``; none without a file."""
    from operate.table_list import read_list

    if file is None:
        return []
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return read_list(content.decode())
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        problem = f"{file} is no text in UTF-8"
    raise typer.BadParameter(problem, param_hint="-f")


def _show_dry_run(
    renderer: Renderer, planned: Plan, problems: Sequence[TributaryError], *, strict: bool
) -> None:
    """Print the steps of ``onboard --dry-run``; then exit, unless the exit code is 0."""
    from operate.table_outcome import exit_code_of

    renderer.document(
        {
            "steps": planned.steps,
            "refused": [one.to_json() for one in planned.refused if one.failed],
            "left_out": [one.to_json() for one in planned.refused if one.left_out],
            "problems": [error.to_dict() for error in problems],
        }
    )
    for step in planned.steps:
        renderer.line(f"{step.kind:<6} {step.where}", style="bold")
        for line in step.text.splitlines():
            renderer.line(f"       {line}")
    if not planned.steps:
        renderer.line("There is no step to do.")
    show_problems(renderer, planned.refused, problems)
    outcomes = [*planned.refused, *planned.accepted]
    code = exit_code_of(outcomes, strict=strict, incomplete=bool(problems))
    if code:
        raise typer.Exit(code)


def bootstrap(
    tables: TablesArgument,
    sessions: SessionsOption = None,
    mb_per_s: RateOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Copy tables that have no copy or lost their stream, and hand them over to the stream.

    Tables that are up to date are skipped; `resync` copies them again. A paused table is
    resumed if an argument names it; wildcards leave it out.
    """
    from operate.context import services
    from operate.discover import selected
    from operate.onboard import bootstrap as copy

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        opened.copy_budget = CopyBudget(sessions, mb_per_s)
        outcomes = copy(opened, selected(opened, tables, paused=False))
    finish(renderer, outcomes)


def resync(
    tables: TablesArgument,
    sessions: SessionsOption = None,
    mb_per_s: RateOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Build a new generation beside the serving one, and publish it in one step.

    Until the new generation is published, runs keep the serving generation up to date. After an
    interruption, the same command continues.
    """
    from operate.context import services
    from operate.discover import selected
    from operate.resync import resync as renew

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        opened.copy_budget = CopyBudget(sessions, mb_per_s)
        outcomes = renew(opened, selected(opened, tables))
    finish(renderer, outcomes)


def move(
    tables: TablesArgument,
    delete_topics: Annotated[
        bool,
        typer.Option("--delete-topics", help="Also delete the topics that the tables leave."),
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Take tables to the tiers that tributary.yaml names for them, while the tables are written to.

    Edit `tier` in the settings of a table first. The table joins the capture of that tier, and is
    copied beside the serving generation. Until the copy is published, `run` keeps the serving
    generation up to date. Then the table leaves the former capture.
    After an interruption, the same command continues.
    """
    from operate.context import services
    from operate.discover import selected
    from operate.move import move as take

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = take(opened, selected(opened, tables), delete_topics=delete_topics)
    finish(renderer, outcomes)


def offboard(
    tables: TablesArgument,
    delete_data: Annotated[
        bool,
        typer.Option("--delete-data", help="Also delete the lake tables and the topics."),
    ] = False,
    source_gone: Annotated[
        bool,
        typer.Option(
            "--source-gone",
            help="Continue if the source does not answer, and name what stays there.",
        ),
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Take tables off the plan; after a tier's last table, also remove the connector and slot."""
    from operate.context import services
    from operate.discover import selected
    from operate.lifecycle import absent_sources
    from operate.lifecycle import offboard as leave
    from operate.table_outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        wanted = selected(opened, tables, retired=delete_data)
        absent = absent_sources(opened, wanted) if source_gone else {}
        outcomes = for_each(
            wanted,
            lambda table: leave(
                opened, table, delete_data=delete_data, absent=absent.get(table.source)
            ),
            action="offboard",
        )
    finish(renderer, outcomes)


def path(
    table: Annotated[str, typer.Argument(metavar="TABLE", help=r"\[source:]schema.table")],
    files: Annotated[
        bool, typer.Option("--files", help="Print the Parquet files of the newest commit.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Print the path of a table's published generation, for readers.

    TABLE can also be the name of a lake table that several source tables feed.
    """
    from operate.context import services
    from operate.discover import selected
    from operate.lifecycle import published_path
    from operate.published_files import published_files

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        shared = table in opened.config.sharded
        wanted = selected(opened, [table])[0] if shared else opened.config.table_id(table)
        found = published_path(opened, wanted)
        listed = published_files(opened, found) if files else []
    document: dict[str, object] = {"table": table if shared else wanted, "path": found}
    if files:
        document["files"] = [one.to_json() for one in listed]
    renderer.document(document)
    for line in [one.url for one in listed] if files else [found]:
        renderer.line(line)


def finish(
    renderer: Renderer,
    outcomes: Sequence[Outcome],
    *,
    strict: bool = False,
    problems: Sequence[TributaryError] | None = None,
) -> None:
    """Print the outcome of each table; then exit, unless the command's exit code is 0.

    If there are many tables, those with nothing to do are only counted, in the last line.

    Args:
        renderer: The output.
        outcomes: The outcomes, one per table.
        strict: Whether a table that matches a wildcard and was left out counts as a failure.
        problems: The errors because of which the command could not find all tables that its
            arguments select; None if the command has no such errors.

    Raises:
        typer.Exit: The exit code is not 0, since a table failed or needs a bootstrap, or since
            there are ``problems``.
    """
    from operate.outcome_summary import MANY, notes, summary
    from operate.table_outcome import exit_code_of

    renderer.document(
        {
            "tables": [outcome.to_json() for outcome in outcomes if not outcome.left_out],
            "left_out": [outcome.to_json() for outcome in outcomes if outcome.left_out],
            **({} if problems is None else {"problems": [one.to_dict() for one in problems]}),
        }
    )
    many = len(outcomes) > MANY
    for outcome in outcomes:
        if outcome.error is None and not (many and outcome.unchanged):
            renderer.line(f"{outcome.table}: {outcome.action}")
            for note in () if many else outcome.details.get("notes", ()):
                renderer.line(f"  note: {note}")
    if many:
        for note, tables in notes(outcomes).items():
            renderer.line(f"note: {note}")
            renderer.line(f"  on {', '.join(map(str, tables))}")
    show_problems(renderer, outcomes, problems or ())
    if many:
        renderer.line(summary(outcomes))
    code = exit_code_of(outcomes, strict=strict, incomplete=bool(problems))
    if code:
        raise typer.Exit(code)


def show_problems(
    renderer: Renderer, outcomes: Sequence[Outcome], of_selection: Sequence[TributaryError] = ()
) -> None:
    """Print each error once, with all tables that have it; then print why tables were left out.

    First, the errors ``of_selection`` are printed, which are about no single table.
    """
    from operate.table_outcome import problems

    for error in of_selection:
        renderer.problem("Error", error.message, error.remedy)
    failed = [outcome for outcome in outcomes if outcome.failed]
    left_out = [outcome for outcome in outcomes if outcome.left_out]
    for one in problems(failed):
        renderer.problem("Error", one.message, one.remedy, one.tables)
    for one in problems(left_out):
        renderer.problem("Left out", one.message, one.remedy, one.tables)
