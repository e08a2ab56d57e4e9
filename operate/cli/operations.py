"""The everyday commands: check, plan, run, verify, pause, resume, retry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from operate.cli.chosen_tables import SomeTablesArgument, TiersOption, chosen
from operate.cli.fail_on import FailOnOption, conditions, show_found
from operate.cli.metrics import MetricsHostOption, MetricsPortOption, metrics_of_run
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.cli.status import show_empty_plan, show_refused, show_targets
from operate.cli.tables import TablesArgument, finish, show_problems
from operate.cli.verification import verify
from operate.conditions import to_json
from operate.exit_codes import ExitCode
from operate.metrics import LOOPBACK
from operate.render import Output, Renderer, seconds

if TYPE_CHECKING:
    from cdc.run import RunResult
    from cdc.store.table_state import TableRecord
    from operate.run import Runs
    from schemas.table import TableId

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the commands of daily work to the command ``tributary``."""
    for command in (check, plan, run, verify, pause, resume, retry):
        app.command()(command)


def check(
    config: ConfigOption = None, output: OutputOption = Output.TEXT, verbose: VerboseOption = 0
) -> None:
    """Check everything that onboarding and runs need; print a remedy for each problem."""
    from operate.check import check as look
    from operate.context import services

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


def plan(
    tables: SomeTablesArgument = None,
    tier: TiersOption = None,
    count: Annotated[
        int, typer.Option("--next", min=1, help="How many of the next runs to show.")
    ] = 20,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show which tables run next, and whether all freshness targets can be kept.

    The durations of runs and the rates of changes are predicted from earlier runs. Exit code 3: a
    target is missed or cannot be kept, or a table's topic or settings cannot be read.
    """
    from operate.cli.forecast import show_forecast
    from operate.context import services
    from operate.forecast import forecast

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found = forecast(opened, chosen(opened, tables, tier), count=count)
    renderer.document(found.to_json())
    show_forecast(renderer, found)
    if not found.kept:
        raise typer.Exit(ExitCode.SOME_FAILED)


def run(
    tables: SomeTablesArgument = None,
    tier: TiersOption = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Repeat the run until stopped (Ctrl-C).")
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.0, help="Seconds between looks, with --continuous."),
    ] = 5.0,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = LOOPBACK,
    fail_on: FailOnOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Apply new changes to the lake, in one run for all tables that have new changes.

    Exit code 3: a table failed or a setting has paused it, a capture sends no changes or holds back
    too much log, a freshness target is missed at the run's end or cannot be kept, a table's check
    failed, the state store has lost its tables, or only a new process can go on. Exit code 4: a
    table needs a bootstrap, or its copy is not complete and no process works on it. --fail-on
    chooses other conditions.
    """
    from cdc.runtime.spark import has_ended
    from cdc.runtime.task_watch import held_cores
    from operate.context import services
    from operate.discover import followed
    from operate.run import Runs

    if metrics_port is not None and not continuous:
        raise typer.BadParameter("needs --continuous", param_hint="--metrics-port")
    wanted = conditions(fail_on) if fail_on else None
    renderer, at_end = Renderer(output), ExitStack()
    with renderer.progress() as progress, services(config, progress) as opened, at_end:
        opened.ends_soon = not continuous
        unmatched = partial(_show_unmatched, renderer) if continuous else None
        records = followed(opened, tables or (), tiers=tier or (), unmatched=unmatched)
        runs = Runs(opened, records, wanted)
        if continuous:
            at_end.enter_context(metrics_of_run(opened, metrics_host, metrics_port))
            _repeat(renderer, runs, interval)
            _require_read(renderer, opened.secret_files.changed)
            if (store := runs.empty_store) is not None and store.lost:
                renderer.document({"empty_store": store.to_json()})
                show_empty_plan(renderer, store)
            waiting, refused = runs.waiting(), runs.refused()
            renderer.document({"conditions": to_json(runs.conditions())})
        else:
            waiting, refused = _run_once(renderer, runs), []
        code, held, ended = runs.exit_code(), held_cores(), has_ended()
        failing = runs.failing()
    show_found(renderer, failing)
    _show_end(renderer, held, ended, runs.failed_checks if continuous else [])
    _show_waiting(renderer, waiting)
    show_refused(renderer, refused)
    _show_not_resynced(renderer, runs)
    if code:
        raise typer.Exit(code)


def _show_not_resynced(renderer: Renderer, runs: Runs) -> None:
    """Print the tables that need a resync which their settings do not allow now."""
    for table, not_now in runs.not_resynced.items():
        renderer.line(f"{table}: no automatic resync now: {not_now}", style="yellow")


def _repeat(renderer: Renderer, runs: Runs, interval_s: float) -> None:
    """Repeat the run until the command is stopped; print results of runs and changed findings."""
    runs.repeat(
        interval_s,
        partial(_show_runs, renderer, shown=set()),
        lambda outcomes: _show_resyncs(renderer, outcomes),
        partial(_show_changed, renderer),
        lambda targets: _show_targets(renderer, targets),
    )


def _show_end(renderer: Renderer, held: int, ended: bool, failed_checks: list[Any]) -> None:
    """Print the checks that runs could not make, and whether Spark has ended or lacks cores."""
    if failed_checks:
        _show_found(renderer, "failed_checks", failed_checks)
    if held:
        renderer.line(
            f"Cancelled Spark tasks that did not end hold {held} of its cores.",
            style="bold red",
        )
        renderer.line("  What to do: start the command again; a new process has all cores.")
    if ended:
        renderer.line(
            "Spark has ended: its JVM died, or the cluster removed its application.",
            style="bold red",
        )
        renderer.line(
            "  What to do: start the command again; it goes on from the last commits. The log of"
            " the driver or of the cluster has the reason."
        )


def _require_read(renderer: Renderer, files: Sequence[str]) -> None:
    """End the command if files with secrets have changed since the command has read them.

    If the command continued, it would next read the state store, to print what waits for an
    operator. If the state store's secret has changed, the store would refuse the command.
    """
    if files:
        renderer.line(
            f"Something failed, and {', '.join(files)} changed since this process has read it.",
            style="bold red",
        )
        renderer.line("  What to do: start the command again, so that it reads the file.")
        raise typer.Exit(ExitCode.SOME_FAILED)


def _run_once(renderer: Renderer, runs: Runs) -> list[TableRecord]:
    """Execute one run for the command ``run``, and print its results.

    Returns:
        The tables that wait for an operator, except tables whose error was already printed.
    """
    results = runs.once()
    if runs.empty:
        show_empty_plan(renderer, runs.empty_store)
    elif not renderer.json:
        _show_runs(renderer, results)
    resynced = runs.resync()
    shown = {result.table for result in results if result.error is not None}
    waiting = [record for record in runs.waiting() if record.table not in shown]
    renderer.document(
        {
            "tables": [result.to_dict() for result in results],
            "resynced": [outcome.to_json() for outcome in resynced],
            "waiting": {str(r.table): r.state.value for r in waiting},
            "not_resynced": runs.not_resynced,
            "silent": [silence.to_json() for silence in runs.silences],
            "forgotten": [forgotten.to_json() for forgotten in runs.forgotten],
            "expiring": [topics.to_json() for topics in runs.expiring],
            "unchecked": [tables.to_json() for tables in runs.unchecked],
            "over_limit": [over.to_json() for over in runs.over_limits],
            "given_up": [over.to_json() for over in runs.given_up],
            "targets": [targets.to_json() for targets in runs.targets],
            "conditions": to_json(runs.conditions()),
            "empty_store": None if runs.empty_store is None else runs.empty_store.to_json(),
            "failed_checks": [failed.to_json() for failed in runs.failed_checks],
        }
    )
    if not renderer.json:
        _show_resyncs(renderer, resynced)
        _show_found(renderer, "silent", runs.silences)
        _show_found(renderer, "forgotten", runs.forgotten)
        _show_found(renderer, "expiring", runs.expiring)
        _show_found(renderer, "unchecked", runs.unchecked)
        _show_found(renderer, "over_limit", runs.over_limits)
        _show_found(renderer, "given_up", runs.given_up)
        show_targets(renderer, runs.targets)
        _show_found(renderer, "failed_checks", runs.failed_checks)
    return waiting


def _show_unmatched(renderer: Renderer, argument: str) -> None:
    """Print that an argument of ``run`` matches no table on the plan yet."""
    renderer.line(
        f"{argument!r} matches no table on the plan yet; tables that are onboarded are followed.",
        style="yellow",
    )


def _show_waiting(renderer: Renderer, waiting: Sequence[TableRecord]) -> None:
    """Print the tables that wait for an operator, with reasons and remedies."""
    from operate.table_outcome import unfinished

    for record in waiting:
        why = record.reason or (record.error and record.error.message) or "see tributary status"
        renderer.line(f"{record.table}: {record.state.value}: {why}", style="yellow")
        if remedy := record.remedy or unfinished(record):
            renderer.line(f"  What to do: {remedy}")


def _show_resyncs(renderer: Renderer, outcomes: list[Any]) -> None:
    """Print the outcomes of automatic resyncs."""
    if renderer.json:
        renderer.document({"resynced": [outcome.to_json() for outcome in outcomes]})
        return
    for outcome in outcomes:
        if outcome.error is None:
            renderer.line(f"{outcome.table}: {outcome.action}")
    show_problems(renderer, outcomes)


def _show_targets(renderer: Renderer, targets: list[Any]) -> None:
    """Print which freshness targets are missed or cannot be kept, or say that all are kept."""
    if renderer.json:
        renderer.document({"targets": [one.to_json() for one in targets]})
    elif not targets:
        renderer.line("All freshness targets are kept again.", style="green")
    show_targets(renderer, targets)


def _show_changed(renderer: Renderer, key: str, found: Sequence[Any]) -> None:
    """Print the changed list of one kind of findings, such as silent captures; it can be empty."""
    if key == "failed_checks" and not found and not renderer.json:
        renderer.line("All checks are possible again.", style="green")
    _show_found(renderer, key, found)


_GRAVE = frozenset({"silent", "forgotten", "given_up", "failed_checks"})
"""The kinds of findings that are printed in red."""


def _show_found(renderer: Renderer, key: str, found: Sequence[Any]) -> None:
    """Print findings such as silent captures, with remedies; in JSON, ``key`` names their list."""
    style = "bold red" if key in _GRAVE else "yellow"
    if renderer.json:
        renderer.document({key: [one.to_json() for one in found]})
        return
    for one in found:
        renderer.line(one.message, style=style)
        renderer.line(f"  What to do: {one.remedy}")


def _show_runs(
    renderer: Renderer, results: list[RunResult], shown: set[TableId] | None = None
) -> None:
    """Print the results of one run of all tables.

    Args:
        renderer: The output.
        results: One result for each table that had work.
        shown: The tables that were already printed as skipped. They are not printed again until
            this process has run them, since another process can hold a table for many runs. If
            None, each skipped table is printed.
    """
    shown = set() if shown is None else shown
    if renderer.json:
        renderer.document({"tables": [result.to_dict() for result in results]})
        return
    idle = [one for one in results if one.error is None and not (one.commits or one.warnings)]
    if len(idle) == len(results):
        renderer.line("Nothing to do: every table is at the end of its topic.")
    for result in results:
        if result in idle:
            continue
        if result.skipped:
            if result.table not in shown:
                renderer.line(f"{result.table}: skipped: {'; '.join(result.warnings)}")
                shown.add(result.table)
            continue
        shown.discard(result.table)
        if result.error is not None:
            renderer.line(f"{result.table}: {result.error.message}", style="bold red")
            renderer.line(f"  What to do: {result.error.remedy}")
            continue
        renderer.line(
            f"{result.table}: {result.events:,} changes in {result.commits} commits,"
            f" {seconds(result.seconds)}"
        )
        for warning in result.warnings:
            renderer.line(f"  {warning}", style="yellow")


def pause(
    tables: TablesArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, which `status` shows.")
    ] = "by an operator",
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Stop applying changes to tables until `resume`; the topics keep the changes meanwhile."""
    from operate.context import services
    from operate.discover import selected
    from operate.lifecycle import pause as stop
    from operate.table_outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            selected(opened, tables),
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
    """Let paused tables continue from where they stopped."""
    from operate.context import services
    from operate.discover import selected
    from operate.lifecycle import resume as go_on
    from operate.table_outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            selected(opened, tables), lambda table: go_on(opened, table), action="resume"
        )
    finish(renderer, outcomes)


def retry(
    tables: TablesArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Let failed tables continue, and restart a connector that failed or lost its connection."""
    from operate.context import services
    from operate.discover import selected
    from operate.lifecycle import retry as again
    from operate.table_outcome import for_each

    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        outcomes = for_each(
            selected(opened, tables), lambda table: again(opened, table), action="retry"
        )
    finish(renderer, outcomes)
