"""The exit codes of the process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from cdc.errors import LostHistoryError, SchemaChangeError
from cdc.store.table_state import State
from schemas.errors import TributaryError

_NEEDS = State.NEEDS_BOOTSTRAP.value


class ExitCode(IntEnum):
    """The exit codes of the process."""

    OK = 0
    ERROR = 1
    USAGE = 2
    SOME_FAILED = 3
    NEEDS_BOOTSTRAP = 4


def exit_code(*, failed: bool, needs_bootstrap: bool) -> ExitCode:
    """Return the exit code of a command over several tables.

    Args:
        failed: Whether at least one table failed.
        needs_bootstrap: Whether at least one table needs a bootstrap. If both arguments are True,
            the result is the exit code for a bootstrap.
    """
    if needs_bootstrap:
        return ExitCode.NEEDS_BOOTSTRAP
    return ExitCode.SOME_FAILED if failed else ExitCode.OK


def requires_bootstrap(error: BaseException | None) -> bool:
    """Whether a table's error leads to exit code 4, since only another bootstrap resolves it."""
    if isinstance(error, TributaryError) and error.context.get("state") == _NEEDS:
        return True
    return isinstance(error, (LostHistoryError, SchemaChangeError))


@dataclass(frozen=True)
class Meaning:
    """What the exit codes of commands mean, as a row of the table in docs/observe.md.

    Exit code 2 is wrong usage of any command.

    Args:
        commands: The commands, each with the option that changes the meaning, if there is one.
        ok: The meaning of exit code 0.
        error: The meaning of exit code 1.
        some_failed: The meaning of exit code 3; None if the commands never have it.
        needs_bootstrap: The meaning of exit code 4; None if the commands never have it.
    """

    commands: tuple[str, ...]
    ok: str
    error: str = "an error"
    some_failed: str | None = None
    needs_bootstrap: str | None = None


_NEEDED = "a table needs a bootstrap"
_OF_TABLES = (
    *("onboard", "bootstrap", "resync", "move", "offboard", "pause", "resume", "retry"),
    "quarantine replay",
)
MEANINGS = (
    Meaning(
        ("status",),
        "no table is as below; targets, pauses by an operator and quarantines do not count",
        "an error, for example no state store",
        "a table failed, was paused by a setting or has lost its stream; a capture has a problem or"
        " is over `wal_limit.alarm`; or the state store has lost its tables",
        "a table needs a bootstrap, or a table with readers waits for a copy that no process works"
        " on",
    ),
    Meaning(
        ("status --check",),
        "every table and capture is as it should be",
        "a table or a capture is in a condition below; or an error",
    ),
    Meaning(
        ("status --fail-on",),
        "nothing is in one of the named conditions",
        "a table or a capture is in one of them; or an error",
    ),
    Meaning(
        ("run",),
        "all tables went on",
        some_failed="a table failed or was paused by a setting, a capture is silent, has tables"
        " that the state store has lost, or is over `wal_limit.alarm`, a target is missed or cannot"
        " be kept, a check with `policy: alarm` or `pause` has failed, the state store has lost"
        " its tables, or only a new process can go on",
        needs_bootstrap="a table needs a bootstrap, or a table with readers waits for a copy that"
        " no process works on",
    ),
    Meaning(
        ("run --fail-on",),
        "nothing is in one of the named conditions",
        some_failed="a table or a capture is in one of them, or only a new process can go on",
        needs_bootstrap="one of them is `needs_bootstrap` or `half_copied`",
    ),
    Meaning(
        ("plan",),
        "all targets are kept",
        some_failed="a target is missed or cannot be kept for sure, or a topic or settings cannot"
        " be read",
    ),
    Meaning(("check",), "no problem, or warnings only", "a check failed, or an error"),
    Meaning(
        ("verify",),
        "all equal",
        some_failed="a difference, or a table that could not be compared",
        needs_bootstrap=_NEEDED,
    ),
    Meaning(
        ("checks run",),
        "no check failed, or only such with `policy: report`, or nothing is due",
        some_failed="a check failed, did not work, or its table could not be checked",
    ),
    Meaning(
        _OF_TABLES,
        "done for all tables, or nothing to do",
        some_failed="failed for a table; `onboard`: or a source or one of several wildcards gave no"
        " table; `onboard --strict`: or left one out",
        needs_bootstrap=_NEEDED,
    ),
    Meaning(
        ("discover",),
        "the tables of all sources are listed",
        some_failed="one of several sources does not answer; the others' tables are listed",
    ),
    Meaning(
        ("schema diff", "schema check"),
        "the lake follows the change in place, or there is none",
        needs_bootstrap="the change needs a bootstrap",
    ),
    Meaning(
        ("complete TABLE PERIOD",),
        "the hour or day is complete",
        "it is not complete yet; or an error",
        needs_bootstrap="it cannot become complete until the table is copied again",
    ),
    Meaning(
        ("metrics", "metrics serve"),
        "written, or stopped by Ctrl-C",
        "no state store, no such folder, port in use",
    ),
)
"""What the exit codes of commands mean; all other commands have 0, 1 and 2 only."""


def table_of_exit_codes() -> str:
    """Return the table of exit codes in docs/observe.md."""
    rows = ["| command | 0 | 1 | 3 | 4 |", "|---|---|---|---|---|"]
    for one in MEANINGS:
        names = ", ".join(f"`{name}`" for name in one.commands)
        rows.append(
            f"| {names} | {one.ok} | {one.error} | {one.some_failed or '-'}"
            f" | {one.needs_bootstrap or '-'} |"
        )
    return "\n".join([*rows, "| all others | done | an error | - | - |"])
