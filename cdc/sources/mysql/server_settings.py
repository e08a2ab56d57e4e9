"""The settings that the primary of a MySQL or MariaDB source must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

END_OLDER = (
    "end all sessions that are open, those of pools, too, or restart the server: each goes on with"
    " what it began with."
)


@dataclass(frozen=True)
class Wanted:
    """The value that one setting must have.

    Args:
        value: The value, as the server shows it.
        remedy: How to set it.
        of_sessions: Whether a session keeps the value that it began with.
        loses: Whether changes are lost or unusable with another value. If not, only `check`
            reports it.
    """

    value: str
    remedy: str
    of_sessions: bool = False
    loses: bool = True


WANTED: Mapping[str, Wanted] = {
    "log_bin": Wanted("ON", "Set log_bin on the primary and restart it."),
    "binlog_format": Wanted(
        "ROW",
        f"SET GLOBAL binlog_format = ROW, and in the option file. Then {END_OLDER}",
        of_sessions=True,
    ),
    "binlog_row_image": Wanted(
        "FULL",
        "SET GLOBAL binlog_row_image = FULL, and in the option file: without the columns that a"
        f" statement did not touch an event is no row. Then {END_OLDER}",
        of_sessions=True,
    ),
    "binlog_row_value_options": Wanted(
        "",
        "SET GLOBAL binlog_row_value_options = '': changes of JSON values are logged in part"
        f" otherwise. Then {END_OLDER}",
        of_sessions=True,
    ),
    "binlog_order_commits": Wanted(
        "ON",
        "SET GLOBAL binlog_order_commits = ON, and in the option file: without it commits become"
        " visible in another order than the log's.",
    ),
    "lower_case_table_names": Wanted(
        "0",
        "Capture from a server where it is 0, which is fixed when a server is initialized: the"
        " connector tells names as they were written.",
    ),
    "gtid_strict_mode": Wanted("ON", "SET GLOBAL gtid_strict_mode = ON.", loses=False),
    "log_bin_compress": Wanted(
        "OFF",
        "SET GLOBAL log_bin_compress = OFF, and in the option file: the connector ignores rows"
        " that are compressed in the binlog.",
    ),
    "binlog_alter_two_phase": Wanted(
        "OFF",
        "SET GLOBAL binlog_alter_two_phase = OFF, and in the option file: with it a statement that"
        f" failed is in the binlog, and the connector takes it as executed. Then {END_OLDER}",
        of_sessions=True,
    ),
}
"""The settings by name; a server of the other kind, or of another version, lacks some."""


def losing(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the settings with which changes are lost or unusable, one sentence each.

    Args:
        variables: The server's settings by name.
    """
    for name, wanted in WANTED.items():
        seen = variables.get(name, wanted.value)
        if wanted.loses and seen != wanted.value:
            yield f"{name} is {seen or 'empty'} and must be {wanted.value or 'empty'}"
