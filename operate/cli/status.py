"""``status``: shows the state of tables and captures, and with ``--check`` judges this state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.chosen_tables import SomeTablesArgument, TiersOption, chosen
from operate.cli.fail_on import FailOnOption, conditions, show_found
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.cli.readers import show_late
from operate.conditions import Condition
from operate.conditions import chosen as select
from operate.exit_codes import ExitCode, exit_code
from operate.render import Output, Renderer, seconds, size

if TYPE_CHECKING:
    from cdc.store.history import RunEntry
    from cdc.store.verifications import VerifyRecord
    from operate.capture_status import CaptureStatus
    from operate.check_status import CheckStatus
    from operate.empty_store import EmptyStore
    from operate.periods import TablePeriods
    from operate.shards import SharedStatus
    from operate.status import Status, TableStatus
    from operate.targets import Shortfall
    from schemas.errors import TributaryError
    from schemas.table import TableId

EMPTY_PLAN = "No table is on the plan. Next: tributary discover, tributary onboard TABLE"


def register(app: typer.Typer) -> None:
    """Add the command ``status`` to the command ``tributary``."""
    app.command()(status)


def status(
    tables: SomeTablesArgument = None,
    tier: TiersOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="End with exit code 1 if any table or capture is not as it should be, and with 0"
            " if all are.",
        ),
    ] = False,
    fail_on: FailOnOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Show state, position, freshness, events behind, last commit, errors and retained log.

    The command also names each freshness target that is missed, or that cannot be kept if runs take
    as long as earlier runs did. Each such target comes with the reason and the remedy.
    """
    from operate.context import services
    from operate.status import status as look

    wanted = conditions(fail_on) if fail_on else frozenset(Condition if check else ())
    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found = look(opened, chosen(opened, tables, tier))
    renderer.document(found.to_json())
    show_status(renderer, found, named=bool(tables))
    if wanted:
        failing = select(found.conditions, wanted)
        show_found(renderer, failing)
        code = ExitCode.ERROR if failing else ExitCode.OK
    else:
        code = exit_code(failed=found.failed, needs_bootstrap=found.needs_bootstrap)
    if code:
        raise typer.Exit(code)


def show_status(renderer: Renderer, found: Status, *, named: bool) -> None:
    """Show the tables, the messages about each table, and the captures.

    Args:
        renderer: The output.
        found: The status.
        named: Whether arguments of the command selected the tables. If True, the size of each table
            is shown, too.
    """
    if not found.tables:
        show_empty_plan(renderer, found.empty_store)
    else:
        _show_tables(renderer, found.tables)
    for shared in found.shared:
        _show_shared(renderer, shared)
    for table in found.tables:
        _show_messages(renderer, table)
        if named:
            _show_size(renderer, table)
        if table.runs:
            _show_last_runs(renderer, table.record.table, table.runs)
    for capture in found.captures:
        _show_capture(renderer, capture)
    show_targets(renderer, found.targets)
    show_late(renderer, found.readers)


def show_empty_plan(renderer: Renderer, store: EmptyStore | None) -> None:
    """Show that no table is on the plan; if the state store has lost its tables, show this loss."""
    if store is None or not store.lost:
        renderer.line(EMPTY_PLAN)
    if store is not None and (problem := store.problem) is not None:
        renderer.line(problem.message, style="bold red" if store.lost else "yellow")
        renderer.line(f"  What to do: {problem.remedy}")


def show_refused(renderer: Renderer, refused: Sequence[TributaryError]) -> None:
    """Print tables that another process has copied with newer settings than this process has.

    Each table comes with the remedy.
    """
    for error in refused:
        renderer.line(error.message, style="bold red")
        renderer.line(f"  What to do: {error.remedy}")


def show_targets(renderer: Renderer, targets: Iterable[Shortfall]) -> None:
    """Show the freshness targets that are missed or cannot be kept, each with its remedies."""
    for one in targets:
        renderer.line(one.message, style="bold red" if one.missed else "yellow")
        renderer.line(f"  What to do: {one.remedy}")


def _show_tables(renderer: Renderer, tables: Sequence[TableStatus]) -> None:
    """Print the tables, one a row, as ``status`` shows them."""
    rows = []
    for table in tables:
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


def _show_shared(renderer: Renderer, shared: SharedStatus) -> None:
    """Print the state of a shared lake table and its shards."""
    old = "unknown" if shared.freshness_s is None else seconds(shared.freshness_s)
    joining = f", {len(shared.joining)} not published yet" if shared.joining else ""
    renderer.line(
        f"{shared.name}: {shared.shards} shards{joining}; freshness of the oldest: {old}",
        style="yellow" if shared.late else None,
    )
    for name, state in shared.held_back.items():
        renderer.line(f"  shard {name} is {state}", style="yellow")


def _show_messages(renderer: Renderer, table: TableStatus) -> None:
    """Print the messages about a table, which ``status`` shows below the list of tables."""
    record = table.record
    why = record.reason or (record.error and record.error.message)
    if why:
        renderer.line(f"{record.table}: {why}", style="yellow")
    if table.lost is not None:
        renderer.line(f"{record.table}: {table.lost.message}", style="bold red")
    if table.remedy:
        renderer.line(f"  What to do: {table.remedy}")
    if table.late:
        renderer.line(
            f"{record.table}: freshness exceeds its target of {seconds(table.target_s)}",
            style="yellow",
        )
    if table.quarantined:
        renderer.line(
            f"{record.table}: {table.quarantined:,} records are in quarantine; the watermark stays"
            " before the first",
            style="yellow",
        )
        renderer.line(f"  What to do: run `tributary quarantine list {record.table}`")
    if (periods := table.periods) is not None:
        _show_periods(renderer, record.table, periods)
    if table.verified is not None and not table.verified.equal:
        _show_unequal(renderer, record.table, table.verified)
    for check in table.checks:
        if check.alarms:
            _show_failed_check(renderer, record.table, check)
    for note in table.notes:
        renderer.line(f"{record.table}: {note}")


def _show_failed_check(renderer: Renderer, table: TableId, check: CheckStatus) -> None:
    """Print the failed check of a table, with its remedy."""
    result = check.failure
    if result is None:
        return
    renderer.line(
        f"{table}: check {check.name} failed at {result.finished_at:%Y-%m-%d %H:%M:%S} UTC:"
        f" {result.detail}",
        style="bold red",
    )
    # The next result of such a check is about other rows.
    covered = result.reach is None or result.reach.method == "all"
    again = f"`tributary checks run {table} --name {check.name}`"
    again = again if covered else f"`tributary verify {table}`"
    renderer.line(f"  What to do: correct the rows or the check, then run {again}")


def _show_periods(renderer: Renderer, table: TableId, periods: TablePeriods) -> None:
    """Print the newest complete period of a table, and whether the next period is overdue."""
    newest = "none yet" if periods.newest is None else f"{periods.newest} ({periods.zone})"
    late = f"; {periods.late_rows:,} late rows" if periods.late_rows else ""
    overdue = periods.overdue(datetime.now(timezone.utc))
    renderer.line(
        f"{table}: newest complete {periods.by}: {newest}{late}"
        f"{'; the next one is overdue' if overdue else ''}",
        style="yellow" if overdue else None,
    )


def _show_unequal(renderer: Renderer, table: TableId, verified: VerifyRecord) -> None:
    """Print the differences that ``verify`` has found in a table, with the remedy."""
    counts = [f"{count:,} {kind}" for kind, count in verified.differences.items()]
    renderer.line(
        f"{table}: verify found differences at {verified.at:%Y-%m-%d %H:%M:%S} UTC:"
        f" {', '.join(counts)}",
        style="bold red",
    )
    renderer.line(
        f"  What to do: run `tributary verify {table}` again; if they stay, run `tributary resync"
        f" {table}`"
    )


def _show_size(renderer: Renderer, table: TableStatus) -> None:
    """Print the size of a table's files, if it was measured."""
    if (taken := table.record.size) is None:
        return
    renderer.line(
        f"{table.record.table}: {size(taken.image_bytes)} of current files,"
        f" {size(taken.kept_bytes)} of older files that are kept for readers, and"
        f" {size(taken.other_generations_bytes)} of other generations; measured"
        f" {taken.measured_at:%Y-%m-%d %H:%M:%S} UTC"
    )


def _show_last_runs(renderer: Renderer, table: TableId, runs: Sequence[RunEntry]) -> None:
    """Print the last runs of a table, one a row."""
    renderer.line(f"Last runs of {table}:")
    renderer.table(
        ("began (UTC)", "took", "commits", "events", "state after", "error"),
        [
            (
                f"{run.started_at:%Y-%m-%d %H:%M:%S}",
                seconds(run.seconds),
                run.commits,
                f"{run.events:,}",
                run.state.value,
                run.error and run.error.message,
            )
            for run in runs
        ],
        numbers="took,commits,events",
    )


def _show_capture(renderer: Renderer, capture: CaptureStatus) -> None:
    """Print the state of a capture, with its problems and remedies."""
    held = None if capture.log is None else capture.log.retained_bytes
    silent = None if capture.silent_s is None else seconds(capture.silent_s)
    renderer.line(
        f"capture {capture.source}/{capture.tier}: connector {capture.connector or 'unknown'},"
        f" last heartbeat {'unknown' if silent is None else f'{silent} ago'},"
        f" {'unknown' if held is None else size(held)} of log kept"
    )
    if capture.problem:
        renderer.line(f"  {capture.problem}", style="bold red")
    if (over := capture.over_limit) is not None:
        renderer.line(f"  {over.message}", style="bold red" if over.alarms else "yellow")
        renderer.line(f"  What to do: {over.remedy}")
    if capture.warning:
        renderer.line(f"  {capture.warning}", style="yellow")
