"""The DDL statements that one process has read, for the processes after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from cdc.capture.kept_statements import StatementsInStore
from cdc.debezium import Definitions, ReportedStatements, definitions, fresh_starts
from cdc.errors import DecodeError, StateError
from cdc.kafka import KafkaAdmin
from cdc.store.histories import Histories
from cdc.store.state_store import Store
from cdc.store.statements import StatementRows
from cdc.store.tables import statement_rows, statement_topic_rows
from schemas.table import TableId
from tests.unit.cdc.debezium.statement_topics import (
    CAPTURE,
    REGISTRY,
    Kafka,
    second,
    value,
    written,
)

TOPIC = CAPTURE.schema_change_topic
ORDERS = TableId("shop", "shop", "orders")


def alter(name: str) -> bytes:
    return written(f"ALTER TABLE orders ADD {name} int", "orders", gtid=f"0-1-{ord(name)}")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url)
    yield opened
    opened.close()


@pytest.fixture
def kafka() -> Kafka:
    return Kafka([alter(name) for name in "abc"])


def reader(kafka: Kafka, store: Store | None) -> Definitions:
    """The reader of a new process."""
    kept = None if store is None else StatementsInStore(store)
    return Definitions(cast("KafkaAdmin", kafka), REGISTRY, kept)


def found(kafka: Kafka, store: Store | None) -> ReportedStatements:
    """What a new process finds; the topic's list of reads begins again."""
    kafka.asked.clear()
    return reader(kafka, store).of(CAPTURE)


def added(reported: ReportedStatements) -> str:
    """The columns that the statements have added."""
    return "".join(one.statement.split()[4] for one in reported.by_table.of(ORDERS))


def writes(store: Store) -> list[str]:
    """The SQL statements that write to the state store, from now on."""
    done = list[str]()

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if statement.split()[0] in ("INSERT", "UPDATE", "DELETE"):
            done.append(statement.split()[0])

    sa.event.listen(store._engine, "before_cursor_execute", note)
    return done


def test_a_later_process_reads_only_what_no_earlier_one_has_read(
    kafka: Kafka, store: Store
) -> None:
    assert added(found(kafka, store)) == "abc"
    assert kafka.asked == [(7, 10)]
    done = writes(store)
    # Only the last record that was read is compared.
    assert found(kafka, store) == found(kafka, None)
    assert found(kafka, store).end == 10
    assert (kafka.asked, done) == ([(9, 10)], [])
    kafka.values += [alter("d"), alter("e")]
    again = reader(kafka, store)
    kafka.asked.clear()
    assert added(again.of(CAPTURE)) == "abcde"
    assert kafka.asked == [(9, 10), (10, 12)]
    assert done == ["UPDATE", "INSERT"]
    assert added(again.of(CAPTURE)) == added(found(kafka, store)) == "abcde"
    assert kafka.asked == [(11, 12)]
    assert found(kafka, store) == found(kafka, None)


def test_a_topic_is_kept_in_parts(
    kafka: Kafka, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a later part cannot be read, the earlier ones are kept all the same."""
    monkeypatch.setattr(definitions, "_PART", 2)
    kafka.values.append(b"\0\0\0\0\1")
    with pytest.raises(DecodeError, match="offset 10"):
        found(kafka, store)
    kafka.values[3] = alter("d")
    assert added(found(kafka, store)) == "abcd"
    assert kafka.asked == [(8, 9), (9, 11)]


def test_a_topic_that_was_created_again_is_read_from_its_start(kafka: Kafka, store: Store) -> None:
    found(kafka, store)
    kafka.id, kafka.values = "second", [alter(name) for name in "wxyz"]
    assert added(found(kafka, store)) == "wxyz"
    assert kafka.asked == [(7, 11)]
    assert added(found(kafka, store)) == "wxyz"
    assert kafka.asked == [(10, 11)]


def test_a_topic_that_lost_records_is_read_from_its_start(kafka: Kafka, store: Store) -> None:
    found(kafka, store)
    del kafka.values[1:]
    assert added(found(kafka, store)) == "a"
    assert kafka.asked == [(7, 8)]
    # It got others in their place since, and reaches beyond the former end.
    kafka.values += [alter(name) for name in "bc"]
    found(kafka, store)
    kafka.values[1:], kafka.sent[9] = [alter(name) for name in "xyz"], second(60)
    assert added(found(kafka, store)) == "axyz"
    assert kafka.asked == [(9, 10), (7, 11)]
    assert added(found(kafka, store)) == "axyz"
    assert kafka.asked == [(10, 11)]


@pytest.mark.parametrize(("first", "rest"), [(8, "bc"), (10, "")])
def test_a_topic_whose_first_records_were_deleted_is_read_from_its_start(
    kafka: Kafka, store: Store, first: int, rest: str
) -> None:
    found(kafka, store)
    kafka.first = first
    assert added(found(kafka, store)) == rest
    assert found(kafka, store) == found(kafka, None)


def test_two_processes_that_read_at_once_keep_each_record_once(kafka: Kafka, store: Store) -> None:
    one, other = reader(kafka, store), reader(kafka, store)
    for process in (one, other):
        assert added(process.of(CAPTURE)) == "abc"
    kafka.values.append(alter("d"))
    assert added(one.of(CAPTURE)) == "abcd"
    kafka.values.append(alter("e"))
    # It comes too late to keep d and e, since its record before these is no longer the last one.
    assert added(other.of(CAPTURE)) == "abcde"
    assert added(found(kafka, store)) == "abcde"
    assert kafka.asked == [(10, 11), (11, 12)]
    # Another process has kept both meanwhile, so it goes on from there.
    kafka.values.append(alter("f"))
    assert added(other.of(CAPTURE)) == "abcdef"
    assert added(one.of(CAPTURE)) == "abcdef"
    assert added(found(kafka, store)) == "abcdef"
    assert kafka.asked == [(12, 13)]


def test_a_slow_process_does_not_bring_a_former_topic_back(kafka: Kafka, store: Store) -> None:
    slow = reader(kafka, store)
    slow.of(CAPTURE)
    former = Kafka([*kafka.values, alter("d")])
    kafka.id, kafka.values = "second", [alter("y"), alter("z")]
    assert added(found(kafka, store)) == "yz"
    slow._kafka = cast("KafkaAdmin", former)
    assert added(slow.of(CAPTURE)) == "abcd"
    assert added(found(kafka, store)) == "yz"
    assert kafka.asked == [(8, 9)]


def test_rows_that_are_missing_are_read_again(kafka: Kafka, store: Store) -> None:
    found(kafka, store)
    with store.transaction() as connection:
        gone = sa.delete(statement_rows).where(statement_rows.c.record_offset == 8)
        connection.execute(gone)
    assert added(found(kafka, store)) == "abc"
    assert kafka.asked == [(7, 10)]
    assert added(found(kafka, store)) == "abc"
    assert kafka.asked == [(9, 10)]


def test_a_record_that_cannot_be_read_costs_a_read_of_the_topic(kafka: Kafka, store: Store) -> None:
    before = found(kafka, store)
    with store.transaction() as connection:
        connection.execute(sa.update(statement_rows).values(record='{"format": 9}'))
    kafka.asked.clear()
    assert found(kafka, store) == before
    assert (7, 10) in kafka.asked
    kafka.asked.clear()
    assert found(kafka, store) == before
    assert kafka.asked == [(9, 10)], "it is stored again"


def test_what_a_later_process_finds_is_what_the_topic_says(store: Store) -> None:
    """Snapshots, tables that no record names, and columns are the same as after a full read."""
    snapshot: dict[str, Any] = {"snapshot": "true"}
    kafka = Kafka(
        [
            written("SET character_set_server=utf8mb4", **snapshot),
            written("CREATE TABLE `orders` (id int)", "orders", **snapshot),
            value("CREATE USER u IDENTIFIED BY 'hidden'"),
            written("CREATE TABLE `lines` (id int)", "lines", **snapshot),
            written("DROP INDEX u ON orders", file="binlog.000003", pos=300),
            written("ALTER TABLE big EXCHANGE PARTITION p WITH TABLE orders", "big", gtid="0-1-2"),
            written("RENAME TABLE a TO b", "b", "orders"),
        ]
    )
    before, after = found(kafka, store), found(kafka, store)
    assert kafka.asked == [(13, 14)]
    for table in (ORDERS, TableId("shop", "shop", "big"), TableId("shop", "shop", "lines")):
        assert after.by_table.of(table) == before.by_table.of(table)
    assert len(after.by_table.of(ORDERS)) == 3
    assert fresh_starts(after.changes) == fresh_starts(before.changes) == [7, 10]
    for one, other in zip(before.changes, after.changes, strict=True):
        assert (one.table, one.columns, one.offset) == (other.table, other.columns, other.offset)


def test_texts_that_no_run_needs_are_not_stored(store: Store, tmp_path: Path) -> None:
    link = "CREATE TABLE f (id int) ENGINE=FEDERATED CONNECTION='mysql://u:hidden@h/db'"
    kafka = Kafka(
        [
            written("CREATE TABLE s (id int) CONNECTION='hidden'", "s", snapshot="true"),
            value("CREATE USER u IDENTIFIED BY 'hidden'"),
            written(link, "f"),
            alter("a"),
        ]
    )
    found(kafka, store)
    with store.transaction() as connection:
        rows = connection.execute(sa.select(statement_rows.c.record)).scalars().all()
    assert "hidden" not in "".join(rows)
    (one,) = found(kafka, store).by_table.of(TableId("shop", "shop", "f"))
    assert one.statement == link.replace("mysql://u:hidden@h/db", "***")


def test_statements_of_a_capture_that_is_removed_or_old_are_deleted(
    kafka: Kafka, store: Store
) -> None:
    found(kafka, store)
    StatementRows(store).forget("another")
    assert Histories(store).forget(60) == 0
    assert found(kafka, store).end == 10
    assert kafka.asked == [(9, 10)]
    StatementRows(store).forget(TOPIC)
    found(kafka, store)
    assert kafka.asked == [(7, 10)]
    with store.transaction() as connection:
        connection.execute(sa.update(statement_topic_rows).values(noted_at=1.0))
    assert Histories(store).forget(60) == 3
    found(kafka, store)
    assert kafka.asked == [(7, 10)]
    with store.transaction() as connection:
        assert (
            connection.execute(sa.select(sa.func.count()).select_from(statement_rows)).scalar() == 3
        )


def reads_while_the_store_is_full(one: Definitions, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(*_: object) -> bool:
        raise StateError("the store is full", remedy="Empty it.")

    with monkeypatch.context() as broken:
        broken.setattr(StatementRows, "add", add)
        one.of(CAPTURE)


def test_statements_that_cannot_be_stored_are_stored_with_the_next_ones(
    kafka: Kafka, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = reader(kafka, store)
    reads_while_the_store_is_full(one, monkeypatch)
    kafka.values.append(alter("d"))
    assert added(one.of(CAPTURE)) == "abcd"
    assert added(found(kafka, store)) == "abcd"
    assert kafka.asked == [(10, 11)], "only the last record is looked at"


def test_a_failed_replacement_of_what_is_stored_leaves_no_hole(
    kafka: Kafka, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has as many records as the topic, so that their number shows nothing."""
    found(kafka, store)
    kafka.values += [alter("d"), alter("e")]
    kafka.first = 9
    one = reader(kafka, store)
    reads_while_the_store_is_full(one, monkeypatch)
    kafka.values.append(alter("f"))
    assert added(one.of(CAPTURE)) == "cdef"
    assert added(found(kafka, store)) == "cdef"
