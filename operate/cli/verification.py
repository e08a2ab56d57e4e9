"""The command ``verify``: compares source and lake, and prints what differs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.cli.tables import TablesArgument, show_problems
from operate.exit_codes import exit_code
from operate.render import Output, Renderer, seconds

if TYPE_CHECKING:
    from operate.verify.result import Verification


class ReadFrom(str, Enum):
    """The server from which ``verify`` reads the source's rows."""

    REPLICA = "replica"
    PRIMARY = "primary"


SampleOption = Annotated[
    float | None,
    typer.Option(
        "--sample",
        min=0.0001,
        max=1.0,
        metavar="FRACTION",
        help="Only random ranges of the key: this part of them.",
    ),
]
MaxSecondsOption = Annotated[
    int | None,
    typer.Option(
        "--max-seconds",
        min=1,
        help="Begin no further range of the key after so many seconds, and remember the place.",
    ),
]
ContinueOption = Annotated[
    bool,
    typer.Option("--continue", help="Go on where an earlier one with --max-seconds ended."),
]
MaxSessionsOption = Annotated[
    int | None,
    typer.Option("--max-sessions", min=1, help="Most sessions that read the source at a time."),
]
FromOption = Annotated[
    ReadFrom,
    typer.Option(
        "--from",
        help="Server that the source's rows are read from. The primary shows what only the replica"
        " lacks, and bears the load of reading all rows.",
    ),
]


def verify(
    tables: TablesArgument,
    sample: SampleOption = None,
    max_seconds: MaxSecondsOption = None,
    go_on: ContinueOption = False,
    max_sessions: MaxSessionsOption = None,
    read_from: FromOption = ReadFrom.REPLICA,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Compare source and lake row for row while both change; exit code 3 if they differ."""
    from operate.context import services
    from operate.discover import selected
    from operate.verify.batch import verify_tables
    from operate.verify.scope import Scope

    if sample is not None and (max_seconds is not None or go_on):
        raise typer.BadParameter(
            "is not possible with --max-seconds or --continue", param_hint="--sample"
        )
    scope = Scope(
        method="full" if sample is None else "sample",
        fraction=1.0 if sample is None else sample,
        seed=secrets.randbelow(2**31),
        max_seconds=max_seconds,
        max_sessions=max_sessions,
        go_on=go_on,
        from_primary=read_from is ReadFrom.PRIMARY,
    )
    renderer = Renderer(output)
    with renderer.progress() as progress, services(config, progress) as opened:
        found, failures = verify_tables(opened, selected(opened, tables), scope)
    renderer.document(
        {
            "tables": [result.to_json() for result in found]
            + [{**outcome.to_json(), "equal": False} for outcome in failures]
        }
    )
    for result in found:
        _show_verification(renderer, result)
    show_problems(renderer, failures)
    different = any(not result.equal for result in found)
    code = exit_code(
        failed=different or bool(failures),
        needs_bootstrap=any(outcome.needs_bootstrap for outcome in failures),
    )
    if code:
        raise typer.Exit(code)


_SHOWN_KEYS = 20


def _show_verification(renderer: Renderer, result: Verification) -> None:
    """Print what ``verify`` has found for a table."""
    verdict = "equal" if result.equal else "DIFFERENT"
    renderer.line(
        f"{result.table}: {verdict}, {result.rows_compared:,} rows compared,"
        f" {result.checked_again:,} of them again because they changed meanwhile; up to source"
        f" position {result.position}, {seconds(result.seconds)}",
        style="green" if result.equal else "bold red",
    )
    if result.parts is not None:
        renderer.line(f"  {result.parts[1]:,} of {result.parts[0]:,} ranges of the key")
    if result.proven is not None:
        renderer.line(
            f"  Equal so far: {result.proven.rows:,} rows. Next: tributary verify {result.table}"
            " --continue"
        )
    for one in result.differences[:_SHOWN_KEYS]:
        columns = f" in {', '.join(one.columns)}" if one.columns else ""
        renderer.line(f"  {one.kind}: {_key_as_text(one.key)}{columns}")
    if result.difference_count > _SHOWN_KEYS:
        renderer.line(f"  and {result.difference_count - _SHOWN_KEYS:,} more differences")
    for key in result.unsettled[:_SHOWN_KEYS]:
        renderer.line(f"  never seen equal, since it changes all the time: {_key_as_text(key)}")
    if result.unsettled_count > len(result.unsettled[:_SHOWN_KEYS]):
        renderer.line(
            f"  {result.unsettled_count:,} keys in all could not be compared, since they keep"
            " changing"
        )
    if result.difference_count:
        renderer.line(f"  What to do: run `tributary resync {result.table}`, which copies it again")


def _key_as_text(key: Mapping[str, object]) -> str:
    """Return the key of a compared row as ``verify`` prints it."""
    return ", ".join(f"{name} = {value}" for name, value in key.items())
