"""The exit codes of the process."""

from __future__ import annotations

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
    """Whether only another bootstrap of a table can resolve the table's error."""
    if isinstance(error, TributaryError) and error.context.get("state") == _NEEDS:
        return True
    return isinstance(error, (LostHistoryError, SchemaChangeError))
