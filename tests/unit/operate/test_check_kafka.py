from __future__ import annotations

import pytest

from operate.check_kafka import durability

SAFE = {
    "unclean.leader.election.enable": "false",
    "min.insync.replicas": "2",
}


def test_a_safe_topic_is_fine() -> None:
    assert list(durability("t", 3, 3, SAFE)) == []


def test_on_one_broker_there_is_nothing_to_choose() -> None:
    alone = {**SAFE, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    assert list(durability("t", 1, 1, alone)) == []


@pytest.mark.parametrize(
    ("replicas", "setting", "value", "says"),
    [
        (1, "min.insync.replicas", "2", "on one broker only"),
        (
            3,
            "unclean.leader.election.enable",
            "true",
            "a broker that is behind may become the leader",
        ),
        (3, "min.insync.replicas", "1", "a single broker has it"),
    ],
)
def test_what_can_lose_changes_is_named_with_its_remedy(
    replicas: int, setting: str, value: str, says: str
) -> None:
    ((detail, remedy),) = durability("t", replicas, 3, {**SAFE, setting: value})
    assert says in detail
    assert "topic t" in remedy
