"""Documents of state store and lake: a reader accepts exactly the documents that are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticSerializationError

from cdc.errors import LakeError, StateError
from cdc.lake.index import IndexLayout
from cdc.lake.pointer import Pointer, Published
from cdc.store.attempt import Attempt, Chunk
from cdc.store.documents import Codec, Part
from cdc.store.error_record import ErrorRecord
from cdc.store.history import RUN_ENTRIES, SCHEMA_ENTRIES, RunEntry, SchemaEntry
from cdc.store.recorded_change import RecordedChange
from cdc.store.statements import (
    STATEMENT_COLUMNS,
    STATEMENT_RECORDS,
    StoredChange,
    StoredColumn,
    StoredColumns,
    StoredRecord,
)
from cdc.store.table_state import TABLE_RECORDS, CommitSummary, LastRecord, State, TableRecord
from schemas.changes import RenameColumn, Verdict
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.table import Shard, TableId
from tests.handoffs import VIEW
from tests.records import table_record
from tests.unit.cdc.strategies import facts, offsets, recorded_changes, texts, times, views

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TABLE = TableId("shop", "public", "orders")

numbers = st.integers(0, 2**63 - 1)
strings = st.none() | texts
tables = st.builds(TableId, texts, texts, texts)
states = st.sampled_from(State)
keys = st.none() | st.lists(texts, max_size=2).map(tuple)
errors = st.none() | st.builds(
    ErrorRecord, texts, texts, texts, st.dictionaries(texts, texts, max_size=2)
)
chunks = st.builds(Chunk, numbers, keys, keys, numbers, numbers)
attempts = st.builds(
    Attempt,
    st.uuids(),
    times,
    texts,
    topic_id=strings,
    start_offsets=st.none() | offsets,
    start_epochs=st.none() | offsets,
    marker_id=st.none() | st.uuids(),
    x0=strings,
    chunks=st.lists(chunks, max_size=2).map(tuple),
    view=st.none() | views,
    fingerprint=st.none() | st.builds(Fingerprint, st.dictionaries(texts, facts, max_size=2)),
    settings_digest=strings,
    reads_upto=strings,
    handoff_offsets=st.none() | offsets,
    transaction_offsets=st.none() | offsets,
    transaction_topic_id=strings,
    statements_upto=st.none() | numbers,
    statements_topic_id=strings,
    losses=numbers,
    shard=strings,
)
summaries = st.builds(
    CommitSummary,
    offsets,
    strings,
    st.none() | times,
    texts,
    times,
    epochs=offsets,
    last_records=st.dictionaries(
        st.integers(0, 9), st.builds(LastRecord, numbers, numbers), max_size=2
    ),
)
records = st.builds(
    TableRecord,
    tables,
    states,
    texts,
    texts,
    texts,
    times,
    generation=st.integers(1),
    shard=st.none() | st.builds(Shard, texts, texts, texts, texts),
    attempt=st.none() | attempts,
    resume_to=st.none() | states,
    reason=strings,
    error=errors,
    remedy=strings,
    retry_at=st.none() | times,
    failures=numbers,
    last_commit=st.none() | summaries,
    beside=st.booleans(),
)
runs = st.builds(
    RunEntry,
    texts,
    tables,
    st.integers(1),
    states,
    times,
    st.floats(0, 10**9),
    numbers,
    numbers,
    st.dictionaries(texts, numbers, max_size=2),
    offsets,
    watermark=st.none() | times,
    error=errors,
)
changes = st.builds(
    SchemaEntry,
    tables,
    st.integers(1),
    st.integers(1),
    times,
    st.lists(numbers, max_size=2).map(tuple),
    st.lists(recorded_changes, max_size=2).map(tuple),
    texts,
    texts,
)
layouts = st.builds(IndexLayout, texts, numbers, st.booleans())
published = st.builds(Published, texts, numbers, texts, times)
pointers = st.builds(Pointer.of, published, st.lists(published, max_size=2).map(tuple))


def pointer(text: str | bytes) -> Pointer:
    return Pointer.from_json(text, folder="it")


@given(records)
def test_a_table_record_survives(record: TableRecord) -> None:
    assert TABLE_RECORDS.read(TABLE_RECORDS.write(record), "it") == record


@given(runs)
def test_a_run_entry_survives(entry: RunEntry) -> None:
    assert RUN_ENTRIES.read(RUN_ENTRIES.write(entry), "it") == entry


@given(changes)
def test_a_schema_entry_survives(entry: SchemaEntry) -> None:
    assert SCHEMA_ENTRIES.read(SCHEMA_ENTRIES.write(entry), "it") == entry


@given(layouts)
def test_an_index_layout_survives(layout: IndexLayout) -> None:
    assert IndexLayout.from_json(layout.to_json(), "it") == layout


@given(pointers)
def test_a_pointer_survives(shown: Pointer) -> None:
    assert pointer(shown.to_json()) == shown


ATTEMPT = Attempt(
    UUID(int=1),
    NOW,
    "/lake/t",
    start_offsets={0: 1},
    chunks=(Chunk(0, None, ("5",), 1, 1),),
    view=VIEW,
)
RECORD = table_record(
    TABLE,
    shard=Shard("orders", "eu", "_shard", "/lake/orders"),
    attempt=ATTEMPT,
    error=ErrorRecord("KafkaError", "down", "wait", {}),
    last_commit=CommitSummary({0: 5}, None, None, "1", NOW),
)
RUN = RunEntry("r", TABLE, 1, State.INCREMENTAL, NOW, 1.5, 1, 1, {}, {0: 1})
RENAMED = RecordedChange.of(
    RenameColumn(verdict=Verdict.FILL, why="y", name="a", to="b", former=("c",))
)
CHANGE = SchemaEntry(TABLE, 1, 2, NOW, (1,), (RENAMED,), "followed", "k")
STATEMENT = StoredRecord(
    (
        StoredChange(
            "ALTER",
            ("s", "t"),
            "ALTER TABLE t",
            "0-1-5",
            False,
            "b.1:5",
            "",
            None,
        ),
    )
)
COLUMNS = StoredColumns((StoredColumn("c", "VARCHAR", 20, None, None, True, ()),))
INDEX = IndexLayout("bloom")
SHOWN = Pointer.of(Published("/p2", 2, "b", NOW), (Published("/p1", 1, "a", NOW),))
DOCUMENTS: dict[str, tuple[str, Callable[[str], object], type[TributaryError]]] = {
    "record": (
        TABLE_RECORDS.write(RECORD),
        lambda text: TABLE_RECORDS.read(text, "it"),
        StateError,
    ),
    "run": (RUN_ENTRIES.write(RUN), lambda text: RUN_ENTRIES.read(text, "it"), StateError),
    "change": (
        SCHEMA_ENTRIES.write(CHANGE),
        lambda text: SCHEMA_ENTRIES.read(text, "it"),
        StateError,
    ),
    "statement": (
        STATEMENT_RECORDS.write(STATEMENT),
        lambda text: STATEMENT_RECORDS.read(text, "it"),
        StateError,
    ),
    "columns": (
        STATEMENT_COLUMNS.write(COLUMNS),
        lambda text: STATEMENT_COLUMNS.read(text, "it"),
        StateError,
    ),
    "index": (INDEX.to_json(), lambda text: IndexLayout.from_json(text, "it"), LakeError),
    "pointer": (SHOWN.to_json(), pointer, LakeError),
}


def places(plain: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all objects in a document; the path of the document itself comes first."""
    if isinstance(plain, dict) and all(key.isidentifier() for key in plain):
        inner = [place for key, one in plain.items() for place in places(one, (*path, key))]
        return [path, *inner] if plain and path[-1:] != ("facts",) else inner
    if isinstance(plain, list):
        return [place for at, one in enumerate(plain) for place in places(one, (*path, at))]
    return []


def named(path: tuple[str | int, ...]) -> str:
    written = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)
    return written.removeprefix(".")


def at(plain: Any, path: tuple[str | int, ...]) -> Any:
    for one in path:
        plain = plain[one]
    return plain


def refused(document: str, plain: object) -> str:
    """Assert that a changed document is refused; returns the error's message."""
    _, read, kind = DOCUMENTS[document]
    with pytest.raises(kind) as caught:
        read(json.dumps(plain))
    assert caught.value.remedy
    return caught.value.message.removeprefix("it/_current.json ").removeprefix("it ")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_key_is_required_by_its_name(document: str) -> None:
    text = DOCUMENTS[document][0]
    for place in places(json.loads(text)):
        for key in at(json.loads(text), place):
            plain = json.loads(text)
            del at(plain, place)[key]
            assert refused(document, plain) == f"lacks the key {named((*place, key))}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_other_key_is_taken(document: str) -> None:
    text = DOCUMENTS[document][0]
    found = places(json.loads(text))
    assert () in found
    for place in found:
        plain = json.loads(text)
        at(plain, place)["invented"] = 1
        said = f"has the key {named((*place, 'invented'))}, which this version does not know"
        assert refused(document, plain) == said


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_of_another_version_is_refused_whatever_else_is_in_it(document: str) -> None:
    plain = json.loads(DOCUMENTS[document][0])
    for other in ({**plain, "format": 2}, {"format": 2}, {"format": 2, "invented": 1}):
        assert refused(document, other) == "has format 2; this version reads format 1 only"
    assert "has format '1'" in refused(document, {**plain, "format": "1"})


@pytest.mark.parametrize(
    ("document", "path", "value", "reason"),
    [
        ("record", ("state",), "lost", "state: Input should be 'registered'"),
        ("record", ("updated_at",), 5, "updated_at: Input should be a valid datetime"),
        ("record", ("attempt", "id"), "x", "attempt.id: Input should be a valid UUID"),
        ("record", ("attempt", "start_offsets"), {"a": 1}, "attempt.start_offsets.a"),
        ("record", ("attempt", "chunks", 0, "id"), "0", "attempt.chunks[0].id: Input should be"),
        ("record", ("attempt", "view", "on_replica"), 1, "attempt.view.on_replica: Input should"),
        ("record", ("last_commit",), [], "last_commit: Input should be an object"),
        ("run", ("seconds",), "1", "seconds: Input should be a valid number"),
        ("change", ("changes",), {}, "changes: Input should be a valid"),
        ("index", ("buckets",), 1.5, "buckets: Input should be a valid integer"),
        ("pointer", ("former", 0, "generation"), None, "former[0].generation: Input should be"),
    ],
)
def test_a_value_of_another_type_is_named(
    document: str, path: tuple[str | int, ...], value: object, reason: str
) -> None:
    plain = json.loads(DOCUMENTS[document][0])
    at(plain, path[:-1])[path[-1]] = value
    assert refused(document, plain).startswith(f"is not valid: {reason}")


@pytest.mark.parametrize("text", ["", "{", b"\xe9", '"\\udc80"'])
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(LakeError, match=r"^it/_current.json is not JSON: "):
        pointer(text)


def test_the_version_of_a_record_is_the_stores() -> None:
    written = TABLE_RECORDS.write(replace(RECORD, version=7))
    assert written == TABLE_RECORDS.write(RECORD)
    plain = {**json.loads(written), "version": 7}
    assert refused("record", plain) == "has the key version, which this version does not know"


@dataclass(frozen=True)
class Small(Part):
    names: tuple[str, ...]
    format: Literal[3] = 3


def test_what_could_not_be_read_again_is_not_written() -> None:
    codec = Codec(Small, error=StateError, remedy="Nothing.")
    with pytest.raises(PydanticSerializationError):
        codec.write(Small(["a"]))  # type: ignore[arg-type]
    assert codec.read(codec.write(Small(("\u00e9",))), "it") == Small(("\u00e9",))
    assert codec.write(Small(("\u00e9",))).isascii()


@dataclass(frozen=True)
class Unversioned(Part):
    name: str


def test_a_document_has_a_version() -> None:
    with pytest.raises(TypeError, match="Unversioned names no version of its format"):
        Codec(Unversioned, error=StateError, remedy="Nothing.")


def test_an_error_with_bytes_that_are_no_text_can_be_kept() -> None:
    error = StateError("no file \udce9", remedy="Rename \udce9.", path="/\udce9")
    record = replace(RECORD, error=ErrorRecord.of(error), reason=error.message, remedy=error.remedy)
    kept = TABLE_RECORDS.read(TABLE_RECORDS.write(record), "it")
    assert kept.reason == r"no file \udce9"
