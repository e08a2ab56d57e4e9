"""The settings that the primary of a MySQL or MariaDB source must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

END_OLDER = (
    "end all open sessions, including those of connection pools, or restart the server: a session"
    " keeps the value that it began with."
)

_AT_CRASH = (
    "otherwise the server can lose commits that were captured when its machine crashes, and gives"
    " their numbers to later commits, which are then not captured."
)


@dataclass(frozen=True)
class RequiredSetting:
    """The value that a system variable of MySQL or MariaDB must have.

    Args:
        value: The value, as the server prints it.
        remedy: The statement or step that sets the value.
        of_sessions: Whether open sessions keep the old value after the variable is changed.
        loses: Whether the binlog of a running server lacks changes, or has unusable changes, with
            any other value. If False, only `check` reports another value.
        at_crash: Whether another value loses changes only when the server's machine crashes. If
            True, `check` reports a warning and not an error.
        also: Other values with the same effect, in small letters.
        at_least: Whether larger numbers fit, too.
    """

    value: str
    remedy: str
    of_sessions: bool = False
    loses: bool = True
    at_crash: bool = False
    also: frozenset[str] = frozenset()
    at_least: bool = False

    def fits(self, seen: str) -> bool:
        """Whether the variable may have this value."""
        if self.at_least and seen.isdecimal():
            return int(seen) >= int(self.value)
        return seen == self.value or seen.lower() in self.also


WANTED: Mapping[str, RequiredSetting] = {
    "log_bin": RequiredSetting("ON", "Set log_bin on the primary and restart it."),
    "binlog_format": RequiredSetting(
        "ROW",
        f"SET GLOBAL binlog_format = ROW, and in the option file. Then {END_OLDER}",
        of_sessions=True,
    ),
    "binlog_row_image": RequiredSetting(
        "FULL",
        "SET GLOBAL binlog_row_image = FULL, and in the option file: otherwise events lack the"
        f" columns that a statement did not touch. Then {END_OLDER}",
        of_sessions=True,
    ),
    "binlog_row_value_options": RequiredSetting(
        "",
        "SET GLOBAL binlog_row_value_options = '': otherwise the binlog has only the changed"
        f" parts of JSON values. Then {END_OLDER}",
        of_sessions=True,
    ),
    "binlog_order_commits": RequiredSetting(
        "ON",
        "SET GLOBAL binlog_order_commits = ON, and in the option file: otherwise commits become"
        " visible in an order that differs from the binlog's.",
    ),
    "lower_case_table_names": RequiredSetting(
        "0",
        "Capture from a server where it is 0, which is fixed when a server is initialized: the"
        " connector reports names as they were written.",
    ),
    "show_gipk_in_create_table_and_information_schema": RequiredSetting(
        "ON",
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = ON, and in the option file:"
        " otherwise the server hides the primary keys that it generated, which the binlog contains."
        " Then restart the connector.",
    ),
    "sync_binlog": RequiredSetting(
        "1",
        f"SET GLOBAL sync_binlog = 1, and in the option file: {_AT_CRASH}",
        loses=False,
        at_crash=True,
    ),
    "innodb_flush_log_at_trx_commit": RequiredSetting(
        "1",
        f"SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the option file: {_AT_CRASH}",
        loses=False,
        at_crash=True,
    ),
    "gtid_strict_mode": RequiredSetting("ON", "SET GLOBAL gtid_strict_mode = ON.", loses=False),
    "log_bin_compress": RequiredSetting(
        "OFF",
        "SET GLOBAL log_bin_compress = OFF, and in the option file: the connector ignores rows"
        " that are compressed in the binlog.",
    ),
    "binlog_alter_two_phase": RequiredSetting(
        "OFF",
        "SET GLOBAL binlog_alter_two_phase = OFF, and in the option file: otherwise the binlog"
        " contains failed statements, and the connector treats them as executed. Then"
        f" {END_OLDER}",
        of_sessions=True,
    ),
    # The next three exist on newer versions of MariaDB than were tested: they follow its manual,
    # and what the connector's client of the binlog can read.
    "binlog_legacy_event_pos": RequiredSetting(
        "ON",
        "SET GLOBAL binlog_legacy_event_pos = ON, and in the option file: otherwise events lack"
        " their position in the binlog, by which the connector and Tributary distinguish them.",
    ),
    "binlog_row_event_fragment_threshold": RequiredSetting(
        str(1 << 30),
        f"SET GLOBAL binlog_row_event_fragment_threshold = {1 << 30}, and in the option file:"
        " otherwise the binlog has large rows in parts, which the connector ignores.",
        at_least=True,
    ),
    "binlog_storage_engine": RequiredSetting(
        "",
        "Start the server without binlog_storage_engine: the connector cannot read a binlog in"
        " InnoDB, which has no positions in files.",
        also=frozenset({"off", "null", "none"}),
    ),
}
"""The wanted values by the settings' names. A server can lack some of these settings."""


def losing_settings(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each MySQL or MariaDB setting that makes changes missing or unusable.

    Args:
        variables: The server's settings by name.
    """
    for name, wanted in WANTED.items():
        seen = variables.get(name, wanted.value)
        if wanted.loses and not wanted.fits(seen):
            least = "at least " if wanted.at_least else ""
            yield f"{name} is {seen or 'empty'} and must be {least}{wanted.value or 'empty'}"
