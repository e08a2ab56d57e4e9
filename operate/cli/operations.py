"""Commands of every day: check, run, status, verify, pause, resume, retry."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from operate.cli.options import (
    ConfigOption,
    ExitCode,
    OutputOption,
    VerboseOption,
    exit_code,
)
from operate.cli.tables import TablesArgument, finish, size
from operate.render import Output, Renderer, seconds

SomeTablesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLE]...",
        help="[source:]schema.table; quoted wildcards stand for many; none for all.",
        show_default=False,
    ),
]
_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (check, status, pause, resume, retry):
        app.command()(command)


def check(
    config: ConfigOption = None, output: OutputOption = Output.TEXT, verbose: VerboseOption = 0
) -> None:
    """Look at everything that onboarding and running need; each line with its remedy."""
    from operate.context import services
    from operate.preflight import check as look

    renderer = Renderer(output)
    lines = []
    with renderer.progress() as progress, services(config, progress) as opened:
        for line in look(opened):
            lines.append(line)
            renderer.line(
                f"{line.status:<8} {line.name}: {line.detail}", style=_STYLES[line.status]
            )
            if line.remedy:
                renderer.line(f"         {line.remedy}")
    errors = sum(line.status == "error" for line in lines)
    warnings = sum(line.status == "warning" for line in lines)
    renderer.document({"checks": lines, "errors": errors, "warnings": warnings})
    renderer.line(f"{len(lines)} checks, {warnings} warnings, {errors} errors")
    if errors:
        raise typer.Exit(ExitCode.ERROR)


def status(
    tables: SomeTablesArgument = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show state, position, freshness, events behind, log held back, last commit and errors."""
    from operate.context import services
    from operate.inventory import on_plan
    from operate.status import status as look

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found = look(opened, on_plan(opened, tables) if tables else ())
    renderer.document(found.to_json())
    _show_status(renderer, found)
    code = exit_code(failed=found.failed, needs_bootstrap=found.needs_bootstrap)
    if code:
        raise typer.Exit(code)


def _show_status(renderer: Renderer, found: Any) -> None:
    if not found.tables:
        renderer.line("No table is on the plan. Next: tributary discover, tributary onboard TABLE")
        return
    rows = []
    for table in found.tables:
        record, commit = table.record, table.record.last_commit
        rows.append(
            (
                record.table,
                record.state.value,
                None if commit is None else commit.position,
                None if table.freshness_s is None else seconds(table.freshness_s),
                None if table.events_behind is None else f"{table.events_behind:,}",
                None if commit is None else f"{commit.committed_at:%Y-%m-%d %H:%M:%S}",
            )
        )
    heads = ("table", "state", "position", "freshness", "behind", "last commit (UTC)")
    renderer.table(heads, rows, numbers="freshness,behind")
    for table in found.tables:
        record = table.record
        why = record.reason or (record.error or {}).get("message")
        if why:
            renderer.line(f"{record.table}: {why}", style="yellow")
        if record.remedy:
            renderer.line(f"  What to do: {record.remedy}")
        if table.late:
            renderer.line(
                f"{record.table}: older than its target of {seconds(table.target_s)}",
                style="yellow",
            )
        for note in table.notes:
            renderer.line(f"{record.table}: {note}")
    for slot in found.slots:
        held = None if slot.health is None else slot.health.retained_bytes
        renderer.line(
            f"slot {slot.slot}: connector {slot.connector or 'unknown'},"
            f" {'unknown' if held is None else size(held)} of log held back"
        )
        if slot.problem:
            renderer.line(f"  {slot.problem}", style="bold red")


def pause(
    tables: TablesArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why, for status.")] = "by an operator",
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Leave tables alone until they are resumed; their changes wait in the topics."""
    from operate.context import services
    from operate.inventory import on_plan
    from operate.lifecycle import pause as stop
    from operate.outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            on_plan(opened, tables),
            lambda table: stop(opened, table, reason=reason),
            action="pause",
        )
    finish(renderer, outcomes)


def resume(
    tables: TablesArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Let paused tables go on where they were."""
    from operate.context import services
    from operate.inventory import on_plan
    from operate.lifecycle import resume as go_on
    from operate.outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            on_plan(opened, tables), lambda table: go_on(opened, table), action="resume"
        )
    finish(renderer, outcomes)


def retry(
    tables: TablesArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Let failed tables go on where they were, and restart a failed connector."""
    from operate.context import services
    from operate.inventory import on_plan
    from operate.lifecycle import retry as again
    from operate.outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            on_plan(opened, tables), lambda table: again(opened, table), action="retry"
        )
    finish(renderer, outcomes)
