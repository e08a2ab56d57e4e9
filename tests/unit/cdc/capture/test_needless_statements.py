"""Statements on tables that are not on the plan go once no run and no command can need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from cdc.capture import kept_statements
from cdc.capture.kept_statements import StatementsInStore, needless_offsets
from cdc.capture.known_definition import newest
from cdc.debezium import (
    DefinitionChange,
    Definitions,
    KnownColumn,
    ReportedStatements,
    fresh_starts,
    known_tables,
)
from cdc.debezium.definitions import StatementsByTable
from cdc.errors import StateError
from cdc.kafka import KafkaAdmin
from cdc.store import statements
from cdc.store.state_store import Store
from cdc.store.statements import StatementRows
from cdc.store.table_state import State
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.debezium.statement_topics import CAPTURE, REGISTRY, Kafka, value, written

NAMES = ("a", "b", "c", "d")
TABLES = [TableId("shop", "shop", name) for name in NAMES]
BESIDE = [*TABLES, TableId("shop", "", "a"), TableId("shop", "", "")]
OPENS = "SET character_set_server=utf8mb4"


@st.composite
def changed(draw: st.DrawFn) -> list[DefinitionChange]:
    """The changes of one record, most of which is of one table."""
    snapshot = draw(st.integers(0, 5)) == 0
    tables = draw(st.lists(st.sampled_from(TABLES), min_size=1, max_size=2, unique=True))
    if draw(st.integers(0, 2)):
        del tables[1:]
    beside = draw(st.sampled_from([*[None] * 8, *BESIDE]))
    if draw(st.integers(0, 5)) == 0:
        text = draw(st.sampled_from([OPENS, "CREATE USER u"]))
        return [DefinitionChange(None, None, text, None, snapshot, 0, beside=beside)]
    kind = draw(st.sampled_from(["CREATE", "ALTER", "DROP"]))
    number = draw(st.integers(0, 3))
    column = KnownColumn(f"c{number}", "INT", None, None, None, nullable=True)
    columns = () if kind == "DROP" else (column,)
    return [
        DefinitionChange(kind, one, f"{kind} {number}", "0-1-1", snapshot, 0, None, columns, beside)
        for one in tables
    ]


TOPICS = st.lists(changed(), max_size=24)


def numbered(records: Sequence[Sequence[DefinitionChange]], first: int) -> list[DefinitionChange]:
    return [
        DefinitionChange(**{**vars(one), "offset": offset})
        for offset, record in enumerate(records, first)
        for one in record
    ]


def without(changes: Sequence[DefinitionChange], gone: Sequence[int]) -> list[DefinitionChange]:
    return [one for one in changes if one.offset not in gone]


def require_same(
    full: Sequence[DefinitionChange],
    left: Sequence[DefinitionChange],
    on_record: Sequence[TableId],
    since: int,
) -> None:
    """All that runs and commands ask; of tables without a record only what is new since."""
    assert known_tables(left) == known_tables(full)
    assert fresh_starts(left) == fresh_starts(full)
    ours, theirs = newest(left), newest(full)
    of, of_full = StatementsByTable(left), StatementsByTable(full)
    for table in TABLES:
        assert ours.get(table, ()) == theirs.get(table, ())
        upto = 0 if table in on_record else since
        assert [one for one in of.of(table) if one.offset >= upto] == [
            one for one in of_full.of(table) if one.offset >= upto
        ]


@given(TOPICS, TOPICS, st.sets(st.sampled_from(TABLES)), st.integers(0, 24))
def test_every_question_has_the_same_answer_without_needless_records(
    records: list[list[DefinitionChange]],
    more: list[list[DefinitionChange]],
    on_record: set[TableId],
    upto: int,
) -> None:
    """Also if the deletion dies amid them, and whatever is reported later."""
    before, after = numbered(records, 0), numbered(more, len(records))
    gone = needless_offsets(before, {(one.schema, one.name) for one in on_record})
    assert gone == sorted(gone)
    left = without(before, gone[:upto])
    require_same(before, left, list(on_record), len(records))
    require_same([*before, *after], [*left, *after], list(on_record), len(records))
    # Tables that are onboarded later keep all that is reported from then on.
    later = list(on_record | {TABLES[0]})
    again = [*left, *after]
    gone = needless_offsets(again, {(one.schema, one.name) for one in later})
    left = without(again, gone)
    require_same([*before, *after], left, list(on_record), len(records) + len(more))
    assert [one for one in left if one.offset >= len(records) and one.table == TABLES[0]] == [
        one for one in after if one.table == TABLES[0]
    ]


def told(*texts: str) -> list[DefinitionChange]:
    """Statements, each as ``kind table``."""
    found = []
    for offset, text in enumerate(texts):
        kind, _, name = text.partition(" ")
        table = TableId("shop", "shop", name) if name else None
        found.append(
            DefinitionChange(kind if name else None, table, text, "0-1-1", kind == "SEEN", offset)
        )
    return found


@pytest.mark.parametrize(
    ("texts", "gone"),
    [
        (("CREATE x", "DROP x", "CREATE y", "DROP y", "CREATE z"), [0, 1, 2, 3]),
        (("CREATE x", "ALTER x", "DROP x", "CREATE x", "CREATE z"), [0, 1, 2]),
        (("CREATE a", "DROP a", "CREATE A", "DROP A", "CREATE z"), []),
        # The snapshot shows x as known, so the DROP stays.
        (("SEEN x", "ALTER x", "DROP x", "CREATE z"), [1]),
        # By the record before a snapshot and the last one, starts of the connector are found.
        (("CREATE x", "DROP x", "SEEN z"), [0]),
        (("SEEN z", "CREATE x", "DROP x"), [1]),
        # A rename has the new name: the former one stays known, as the connector has it.
        (("CREATE x", "ALTER y", "CREATE z"), []),
        (("GRANT", "GRANT", "CREATE z"), []),
    ],
)
def test_only_the_present_definition_of_a_table_without_a_record_stays(
    texts: tuple[str, ...], gone: list[int]
) -> None:
    assert needless_offsets(told(*texts), {("shop", "a")}) == gone


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


def found(kafka: Kafka, store: Store | None) -> ReportedStatements:
    """What a new process finds; the topic's list of reads begins again."""
    kafka.asked.clear()
    kept = None if store is None else StatementsInStore(store)
    return Definitions(cast("KafkaAdmin", kafka), REGISTRY, kept).of(CAPTURE)


def staged(count: int) -> list[bytes]:
    """Nights in which an application alters a table that is not on the plan, and one that is."""
    return [
        written(f"ALTER TABLE {name} ADD c{number} int", name)
        for number in range(count)
        for name in ("staging", "orders")
    ]


@pytest.mark.parametrize("state", [State.INCREMENTAL, State.RETIRED])
def test_later_processes_read_only_what_they_need(
    store: Store, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_statements, "_MANY", 4)
    monkeypatch.setattr(statements, "BATCH", 3)
    orders = TableId("shop", "shop", "orders")
    store.put(table_record(orders, state))
    kafka = Kafka([*staged(8), value("CREATE USER u")])
    full = found(kafka, store)
    assert len(found(kafka, store).changes) == len(full.changes), "it deletes what it has read"
    pruned = found(kafka, store)
    assert kafka.asked == [(23, 24)], "only the last record is looked at"
    assert len(pruned.changes) == len(full.changes) - 7
    assert pruned.by_table.of(orders) == full.by_table.of(orders)
    assert newest(pruned.changes) == newest(full.changes)
    assert known_tables(pruned.changes) == known_tables(full.changes)
    assert (pruned.topic_id, pruned.first, pruned.end) == (full.topic_id, full.first, full.end)
    # Further records are added to those that are left.
    kafka.values += staged(1)
    assert len(found(kafka, store).changes) == len(pruned.changes) + 2
    assert len(found(kafka, store).changes) == len(pruned.changes) + 2
    assert kafka.asked == [(25, 26)]


def test_few_needless_records_are_left_alone(store: Store) -> None:
    kafka = Kafka(staged(8))
    for _ in range(3):
        assert len(found(kafka, store).changes) == 16


def test_of_two_processes_that_delete_at_once_one_does(store: Store, tmp_path: Path) -> None:
    """Each has the same records, and the other one may have read the topic again meanwhile."""
    kafka = Kafka(staged(8))
    found(kafka, store)
    rows = StatementsInStore(store)._rows
    stored = rows.of(CAPTURE.schema_change_topic)
    assert stored is not None
    for _ in range(2):
        rows.prune(CAPTURE.schema_change_topic, stored, [7, 9])
    kafka.values += staged(1)
    assert len(found(kafka, store).changes) == 16
    rows.prune(CAPTURE.schema_change_topic, stored, [8, 11])
    assert len(found(kafka, store).changes) == 16
    assert kafka.asked == [(24, 25)], "the rows are complete"
    other = StatementRows(store, "another way to read")
    other.prune(CAPTURE.schema_change_topic, stored, [8, 11])
    assert len(found(kafka, store).changes) == 16


def test_a_process_that_loads_amid_a_deletion_finds_complete_rows(store: Store) -> None:
    """On a server, each further SQL statement of its transaction would see another batch's end."""
    kafka = Kafka(staged(8))
    full = found(kafka, store)
    asked: list[str] = []

    def prune(connection: sa.Connection, _: object, statement: str, *__: object) -> None:
        if statement.startswith("SELECT"):
            asked.append(statement)
        if len(asked) == 2:
            raw = connection.connection.cursor()
            raw.execute("DELETE FROM tributary_statement WHERE record_offset = 7")
            raw.execute("UPDATE tributary_statement_topic SET kept = kept - 1")

    kept = StatementsInStore(store)
    sa.event.listen(store._engine, "before_cursor_execute", prune)
    try:
        loaded = kept.load(CAPTURE)
    finally:
        sa.event.remove(store._engine, "before_cursor_execute", prune)
    assert asked
    assert loaded is not None
    assert loaded[1] == full.changes


def test_one_process_deletes_a_limited_number_of_records(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first run waits for them; the next process goes on."""
    monkeypatch.setattr(kept_statements, "_MANY", 2)
    monkeypatch.setattr(statements, "BATCH", 2)
    monkeypatch.setattr(statements, "PRUNED_BATCHES", 2)
    kafka = Kafka(staged(8))
    assert [len(found(kafka, store).changes) for _ in range(6)] == [16, 16, 12, 8, 4, 2]


@pytest.mark.parametrize("step", ["tables_on_record", "prune"])
def test_a_deletion_that_fails_stops_no_process(
    store: Store, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept_statements, "_MANY", 2)
    kafka = Kafka(staged(8))
    full = found(kafka, store)

    def fail(*_: object) -> None:
        raise StateError("the store is locked", remedy="Wait.")

    monkeypatch.setattr(StatementRows, step, fail)
    assert found(kafka, store).changes == full.changes
    assert "needless statements are not deleted from the store: the store is locked" in caplog.text
