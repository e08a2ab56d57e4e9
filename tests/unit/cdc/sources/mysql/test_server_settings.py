"""Which settings of a MySQL or MariaDB primary cause a loss of changes."""

from __future__ import annotations

from cdc.sources.mysql.server_settings import WANTED, losing_settings

SOUND = {name: wanted.value for name, wanted in WANTED.items()}


def test_each_setting_that_loses_changes_is_named_and_no_other() -> None:
    assert list(losing_settings(SOUND)) == []
    for name, wanted in WANTED.items():
        found = list(losing_settings({**SOUND, name: "2"}))
        needed = f"at least {wanted.value}" if wanted.at_least else wanted.value or "empty"
        assert found == [f"{name} is 2 and must be {needed}"] * wanted.loses


def test_a_binlog_in_files_has_several_names() -> None:
    for seen in ("", "OFF", "NULL"):
        assert list(losing_settings({"binlog_storage_engine": seen})) == []
    (found,) = losing_settings({"binlog_storage_engine": "InnoDB"})
    assert found == "binlog_storage_engine is InnoDB and must be empty"


def test_large_rows_may_be_logged_in_parts_that_no_row_reaches() -> None:
    for seen, found in ((str(1 << 29), 1), (str(1 << 30), 0), (str(1 << 31), 0)):
        variables = {"binlog_row_event_fragment_threshold": seen}
        assert len(list(losing_settings(variables))) == found


def test_a_setting_that_the_server_lacks_loses_nothing() -> None:
    assert list(losing_settings({})) == []
