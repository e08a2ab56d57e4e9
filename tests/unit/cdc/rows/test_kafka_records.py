"""Spark's reads take group ids that no recent read has, and so few that memory is bounded."""

from __future__ import annotations

from cdc.rows.kafka_records import GroupIds

HOUR = 3_600.0
SERVERS = {"bootstrap.servers": "kafka:9092"}
LOGIN = {"sasl.jaas.config": "module required password='canary';"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_reads_of_an_hour_have_different_ids() -> None:
    groups = GroupIds(Clock())
    taken = [groups.take(topic, SERVERS) for topic in ("orders", "orders", "items")]
    assert len(set(taken)) == 3


def test_an_id_is_used_again_by_its_topic_an_hour_later() -> None:
    clock = Clock()
    groups = GroupIds(clock)
    first, second = groups.take("orders", SERVERS), groups.take("orders", SERVERS)
    other = groups.take("items", SERVERS)
    clock.now = HOUR - 1
    assert groups.take("orders", SERVERS) not in (first, second, other)
    clock.now = HOUR
    assert [groups.take("orders", SERVERS) for _ in range(2)] == [first, second]
    assert groups.take("orders", SERVERS) not in (first, second, other)


def test_the_number_of_ids_is_that_of_an_hours_reads() -> None:
    clock = Clock()
    groups = GroupIds(clock)
    taken = set[str]()
    for _ in range(1_000):
        taken.add(groups.take("orders", SERVERS))
        clock.now += 60
    assert len(taken) == 60


def test_reads_with_other_settings_have_other_ids() -> None:
    """Spark refuses a read with other settings than the id's former ones, and prints both."""
    clock = Clock()
    groups = GroupIds(clock)
    taken = list[str]()
    for settings in (SERVERS, SERVERS | LOGIN, SERVERS):
        taken.append(groups.take("orders", settings))
        clock.now += HOUR
    assert len(set(taken)) == 3


def test_ids_of_two_processes_differ() -> None:
    assert GroupIds().take("orders", SERVERS) != GroupIds().take("orders", SERVERS)


def test_no_setting_is_shown() -> None:
    groups = GroupIds()
    groups.take("orders", SERVERS | LOGIN)
    assert "canary" not in repr(groups)
