"""How far back from a topic's end heartbeats and markers are read, and which are left out."""

from __future__ import annotations

import pytest

from cdc.debezium.sent_transactions import since_last_reset, tails
from cdc.log.continuity import SentTransaction


@pytest.mark.parametrize(
    ("start", "end", "firsts"),
    [
        (0, 0, [0]),
        (0, 512, [0]),
        (7, 1_000, [488, 7]),
        (0, 1_000_000, [999_488, 995_904, 967_232, 737_856]),
    ],
)
def test_ever_longer_ends_of_a_topic_are_read(start: int, end: int, firsts: list[int]) -> None:
    assert [*tails(start, end)] == firsts


def test_what_a_server_sent_from_its_former_files_is_left_out() -> None:
    former = [SentTransaction("a", f"binlog.00009{number}", "0-1-5") for number in (0, 1, 9)]
    other = SentTransaction("b", "binlog.000120", "0-2-6")
    again = [SentTransaction("a", f"binlog.00009{number}", "0-1-7") for number in (1, 2)]
    assert since_last_reset([*former, other, *again]) == [other, *again]
    assert since_last_reset([*former, other]) == [*former, other]
    assert since_last_reset([*former, former[1], other]) == [*former, other], "sent again"


def test_what_another_server_of_the_same_number_sent_is_left_out() -> None:
    """Several MariaDB servers can have the same server id, since 1 is the default of all."""
    former = SentTransaction("1", "binlog.000005", "0-1-500", "old:3306")
    for file, left in (("binlog.000003", []), ("binlog.000005", []), ("binlog.000006", [former])):
        later = SentTransaction("1", file, "0-1-7", "new:3306")
        assert since_last_reset([former, later]) == [*left, later]
