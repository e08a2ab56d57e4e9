"""The output of `status` for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.cli.tables import size
from operate.render import seconds

if TYPE_CHECKING:
    from operate.render import Renderer
    from operate.status import Status


def show_status(renderer: Renderer, found: Status, *, named: bool) -> None:
    """Write the tables, the messages about each, and the captures.

    Args:
        renderer: The output.
        found: The status.
        named: Whether the tables were given by name; then their sizes are shown, too.
    """
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
    for shared in found.shared:
        old = "unknown" if shared.freshness_s is None else seconds(shared.freshness_s)
        joining = f", {len(shared.joining)} on their way" if shared.joining else ""
        renderer.line(
            f"{shared.name}: {shared.shards} shards{joining}; the oldest is {old} behind",
            style="yellow" if shared.late else None,
        )
        for name, state in shared.held_back.items():
            renderer.line(f"  shard {name} is {state}", style="yellow")
    for table in found.tables:
        record = table.record
        why = record.reason or (record.error and record.error.message)
        if why:
            renderer.line(f"{record.table}: {why}", style="yellow")
        if table.remedy:
            renderer.line(f"  What to do: {table.remedy}")
        if table.late:
            renderer.line(
                f"{record.table}: older than its target of {seconds(table.target_s)}",
                style="yellow",
            )
        if table.quarantined:
            renderer.line(
                f"{record.table}: {table.quarantined:,} records were left out, and the watermark"
                " stands before the first",
                style="yellow",
            )
            renderer.line(f"  What to do: see `tributary quarantine list {record.table}`")
        for note in table.notes:
            renderer.line(f"{record.table}: {note}")
        if named and (taken := record.size) is not None:
            renderer.line(
                f"{record.table}: {size(taken.image_bytes)} in the lake, and for readers"
                f" {size(taken.kept_bytes)} of older files and"
                f" {size(taken.other_generations_bytes)} of other generations; measured"
                f" {taken.measured_at:%Y-%m-%d %H:%M:%S} UTC"
            )
        if table.runs:
            renderer.line(f"Last runs of {record.table}:")
            renderer.table(
                ("began (UTC)", "took", "commits", "events", "then", "error"),
                [
                    (
                        f"{run.started_at:%Y-%m-%d %H:%M:%S}",
                        seconds(run.seconds),
                        run.commits,
                        f"{run.events:,}",
                        run.state.value,
                        run.error and run.error.message,
                    )
                    for run in table.runs
                ],
                numbers="took,commits,events",
            )
    for capture in found.captures:
        held = None if capture.log is None else capture.log.retained_bytes
        silent = None if capture.silent_s is None else seconds(capture.silent_s)
        renderer.line(
            f"capture {capture.source}/{capture.tier}: connector {capture.connector or 'unknown'},"
            f" last heartbeat {'unknown' if silent is None else f'{silent} ago'},"
            f" {'unknown' if held is None else size(held)} of log kept"
        )
        if capture.problem:
            renderer.line(f"  {capture.problem}", style="bold red")
