"""Which file of a binlog shows a loss, and which transactions each file must have."""

from __future__ import annotations

import pytest

from cdc.log.continuity import LogMark, SentTransaction
from cdc.sources.mysql.binlog_continuity import begins_again, file_after, known_by_file


@pytest.mark.parametrize(
    ("files", "after"),
    [
        (["binlog.000007"], None),
        (["binlog.000006", "binlog.000007", "binlog.000008", "binlog.000009"], "binlog.000008"),
        (["binlog.000012"], "binlog.000012"),  # those before it are purged
        (["binlog.999999", "binlog.1000000"], "binlog.999999"),
        (["binlog.000001"], None),  # RESET MASTER begins again
        (["other.000008"], None),  # log_bin has another value
    ],
)
def test_the_oldest_file_that_began_after_an_earlier_one(
    files: list[str], after: str | None
) -> None:
    assert file_after("binlog.000007", files) == after


def test_what_the_connector_sent_from_a_file_was_in_that_file() -> None:
    sent = [
        SentTransaction("1", "binlog.000006", "0-1-10"),
        SentTransaction("1", "binlog.000007", "0-1-12", "host:3306"),  # a heartbeat
        SentTransaction("1", "binlog.000007", "0-1-11", "6c1e@1"),  # a marker
        SentTransaction("2", "binlog.000007", "0-2-99"),
        SentTransaction("1", "binlog.000008", "0-1-15"),
        SentTransaction("1", "binlog.000009", "0-1-17"),  # the newest file
    ]
    files = ["binlog.000007", "binlog.000008", "binlog.000009"]
    mark = LogMark("6c1e@1", "binlog.000007", "0-1-9,1-1-4")
    known = known_by_file("mariadb", mark, sent, files)
    assert {file: str(gtids) for file, gtids in known.items()} == {
        "binlog.000007": "0-1-12,1-1-4",
        "binlog.000008": "0-1-15",
    }


def test_many_gtids_of_a_file_are_one_set() -> None:
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    sent = [
        SentTransaction("server", "binlog.000007", f"{server}:{number}")
        for number in range(3, 100_000, 2)
    ]
    mark = LogMark("server", "binlog.000007", f"{server}:1-2")
    known = known_by_file("mysql", mark, sent, ["binlog.000007", "binlog.000008"])
    text = str(known["binlog.000007"])
    assert text.startswith(f"{server}:1-3:5:7:")
    assert text.endswith(":99999")


@pytest.mark.parametrize(
    ("newest", "again"),
    [
        ("binlog.000006", True),
        ("binlog.000007", False),
        ("binlog.1000000", False),
        ("other.000001", False),
    ],
)
def test_files_whose_numbers_go_back_begin_again(newest: str, again: bool) -> None:
    assert begins_again("binlog.000007", newest) is again
