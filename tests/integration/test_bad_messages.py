"""Messages that cannot be applied, between real changes: the table stops or quarantines them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
import stamina

from cdc.errors import DecodeError, LakeError, LostHistoryError, PausedByPolicyError, StateError
from cdc.run import RunResult, replay_table, run_tables
from cdc.run.batch import Replayed
from cdc.store.kept_schemas import KeptSchemas
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.table_state import State
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from tests.integration.rigs import faults
from tests.integration.rigs.faults import LostSchema
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import BIG, Orders, settings
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.servers import delete_records


def topic_of(orders: Orders) -> str:
    return orders.replication.record(orders.name).topic


def events(orders: Orders) -> list[tuple[bytes | None, bytes]]:
    """Key and value of all changes in the topic, without tombstones."""
    kafka, topic = orders.replication.kafka, topic_of(orders)
    orders.replication.settle()
    end = kafka.stable_offsets(topic)[0]
    found = kafka.read(topic, 0, kafka.start_offsets(topic)[0], end)
    return [(record.key, record.value) for record in found if record.value is not None]


def produce(orders: Orders, *values: bytes, key: bytes | None = b"k") -> list[int]:
    """Append messages to the topic after all changes so far; returns the messages' offsets."""
    orders.replication.settle()
    return send(orders, *values, key=key)


def send(orders: Orders, *values: bytes, key: bytes | None = b"k") -> list[int]:
    """Append messages to the topic; returns the messages' offsets."""
    replication, topic = orders.replication, topic_of(orders)
    faults.produce(replication.config, topic, *values, key=key)
    end = replication.kafka.stable_offsets(topic)[0]
    return list(range(end - len(values), end))


def kept(orders: Orders) -> list[Quarantined]:
    attempt = orders.replication.record(orders.name).attempt
    assert attempt is not None
    return Quarantine(orders.replication.store).list([str(attempt.id)])


def newest_file(orders: Orders) -> Path:
    folder = Path(orders.timeline.path.removeprefix("file://"))
    return max(folder.rglob("*.parquet"), key=lambda file: file.stem.rpartition("_")[2])


def replay(orders: Orders, **options: Any) -> Replayed:
    record = orders.replication.record(orders.name)
    return replay_table(orders.replication.context(), record, **options)


def configure(orders: Orders, **settings: str) -> None:
    orders.replication.configure(**{f"public__{orders.name}": settings})


def lose(orders: Orders) -> LostSchema:
    return LostSchema(orders.replication.config.kafka.registry.url)


def restore(lost: LostSchema, orders: Orders) -> None:
    """Register the schema of the table's events in the registry under the lost id."""
    schema_id = int.from_bytes(events(orders)[0][1][1:5], "big")
    replication = orders.replication
    schema = replication.registry.schema(schema_id)
    lost.restore(schema, replication.connect, replication.capture.connector)


def varint(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


@settings(on_bad_message="quarantine")
def test_every_kind_is_left_out_by_name_and_later_rows_arrive(
    orders: Orders, shared: Replication
) -> None:
    other = f"{orders.name}_other"
    orders.execute(
        f"CREATE TABLE {other} (id int PRIMARY KEY, note text, body text, price numeric(10,2))"
    )
    shared.add(other)
    orders.execute(
        "INSERT INTO T VALUES (1, 'a', 'b', 1)", f"INSERT INTO {other} VALUES (9, 'x', 'y', 9)"
    )
    assert orders.run().error is None
    before = orders.newest.watermark
    ((key, whole),) = events(orders)
    ((_, foreign),) = events(Orders(shared, other))
    assert key is not None
    header = whole[:5]
    unknown = lose(orders).id
    bad = {
        b"": "shorter than 5 bytes",
        whole[:-3]: "the body does not match its schema",
        b"\x01" + whole[1:]: "does not start with a zero byte",
        b"\x00" + unknown.to_bytes(4, "big") + whole[5:]: "does not know schema id",
        b"\x00\xff\xff\xff\xff" + whole[5:]: "its schema id is larger than any registry's",
        header + b"\x0e" + whole[6:]: "the body does not match its schema",
        header + b"\x00\x02\x02\x02" + varint(2**31 - 1) + b"x": "does not match its schema",
        whole + b"\x00\x00": "the body is longer than its schema says",
        key: "is not a change event",
        foreign: "the schema of another topic's change events",
    }
    offsets = dict(zip(produce(orders, *bad, key=key), bad.values(), strict=True))
    orders.execute("INSERT INTO T VALUES (2, 'later', 'b', 2)")
    result = orders.run()
    assert (result.error, result.state, result.commits) == (None, State.INCREMENTAL, 1)
    assert result.counts == {"c": 1, "quarantined": len(bad)}
    assert f"{len(bad)} records" in result.warnings[-1]
    assert orders.lake("id", "note") == [(1, "a"), (2, "later")]
    found = kept(orders)
    assert [one.offset for one in found] == sorted(offsets)
    for one in found:
        assert offsets[one.offset] in one.reason
        assert (one.table, one.topic) == (shared.table(orders.name), topic_of(orders))
    for place, value in zip(found, bad, strict=True):
        stored = Quarantine(shared.store).get(place.attempt, place.offset)
        assert stored is not None
        assert (stored.key, stored.value, stored.size) == (key, value, len(key) + len(value))
        assert stored.timestamp is not None
    # What is complete ends before the first record that is lacking, also in later runs.
    assert orders.newest.watermark == before
    orders.execute("UPDATE T SET note = 'more' WHERE id = 2")
    assert orders.run().counts == {"u": 1}
    assert orders.newest.watermark == before
    with pytest.raises(DecodeError, match="cannot be applied"):
        replay(orders)
    Quarantine(shared.store).forget(shared.table(orders.name))  # as in a store from a backup
    orders.execute("UPDATE T SET note = 'last' WHERE id = 2")
    result = orders.run()
    assert (result.state, result.error is None) == (State.NEEDS_BOOTSTRAP, False)
    assert result.error is not None
    assert f"lacks {len(bad)} records" in result.error.message


@settings(on_bad_message="quarantine", max_quarantined=2)
def test_more_than_the_limit_stops_the_table(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    (first,) = produce(orders, b"\x07")
    assert orders.run().error is None
    produce(orders, b"\x07", b"\x07")
    result = orders.run()
    assert result.state is State.FAILED
    assert result.error is not None
    assert result.error.context["offset"] == str(first + 1)
    assert "1 could be quarantined (max_quarantined)" in result.error.message
    assert [one.offset for one in kept(orders)] == [first], "nothing of that batch was kept"


@settings(on_bad_message="quarantine")
@pytest.mark.breadth
def test_a_record_that_is_too_large_to_be_kept_stops_the_table(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.run.quarantining.MAX_BYTES", 10)
    (offset,) = produce(orders, b"\x07" * 10)
    result = orders.run()
    assert result.error is not None
    assert "11 bytes are too many to be quarantined" in result.error.message
    assert result.error.context["offset"] == str(offset)
    assert kept(orders) == []


@pytest.mark.breadth
@settings(on_bad_message="quarantine")
def test_a_replay_lets_the_last_change_of_each_key_win(
    orders: Orders, shared: Replication, tmp_path: Path
) -> None:
    orders.execute(
        "INSERT INTO T VALUES (1, 'one', 'b', 1)",
        "INSERT INTO T VALUES (2, 'two', 'b', 2)",
        "INSERT INTO T VALUES (3, 'three', 'b', 3)",
        "DELETE FROM T WHERE id = 3",
    )
    assert orders.run().error is None
    one, two, three, _ = (value for _, value in events(orders))
    lost = lose(orders)
    # Each key loses something: a change that nothing follows, one before an update, and one
    # before a delete, of which the lake keeps no trace.
    places = produce(orders, *(lost.write(value) for value in (three, one, two)))
    orders.execute(
        "UPDATE T SET note = 'newest' WHERE id = 1",
        "DELETE FROM T WHERE id = 2",
        "INSERT INTO T VALUES (4, 'four', 'b', 4)",
    )
    assert orders.run().counts["quarantined"] == 3
    without = [(1, "newest"), (4, "four")]
    assert orders.lake("id", "note") == without
    before = orders.newest
    with pytest.raises(DecodeError, match=f"does not know schema id {lost.id}"):
        replay(orders)
    assert orders.newest == before
    with pytest.raises(StateError, match="no quarantined record from offset"):
        replay(orders, first=places[-1] + 1)

    restore(lost, orders)
    # It writes the catalog's row of the column, which is noted in a commit of its own.
    orders.execute("GRANT SELECT (note) ON T TO PUBLIC")
    file = newest_file(orders)
    away = file.rename(tmp_path / file.name)
    with pytest.raises(LakeError, match=f"not of one moment: .*{file.name}"):
        replay(orders)
    away.rename(file)
    done = replay(orders)
    assert (done.records, done.left_out) == (3, ())
    assert kept(orders) == []
    assert orders.lake("id", "note") == [(1, "newest"), (3, "three"), (4, "four")]
    after = orders.newest
    assert (after.offsets, after.counts) == (before.offsets, {"replayed": 3})
    assert after.watermark is not None
    assert before.watermark is not None
    assert after.watermark > before.watermark, "nothing is lacking any more"
    record = shared.record(orders.name)
    assert record.last_commit is not None
    assert record.last_commit.watermark == after.watermark
    orders.execute("UPDATE T SET note = 'x'")
    assert orders.run().counts == {"u": 2}
    assert orders.lake("id", "note") == [(1, "x"), (3, "three"), (4, "x")]


@pytest.mark.parametrize(
    "policies",
    [
        ("apply", "ignore"),
        pytest.param(("ignore", "apply"), marks=pytest.mark.breadth),
        pytest.param(("apply", "pause"), marks=pytest.mark.breadth),
    ],
)
def test_a_replay_decides_about_a_truncate_as_the_run_did(
    orders: Orders, policies: tuple[str, str]
) -> None:
    at_the_run, at_the_replay = policies
    configure(orders, on_bad_message="quarantine", on_truncate=at_the_run)
    orders.execute(
        "INSERT INTO T VALUES (1, 'one', 'b', 1)", "INSERT INTO T VALUES (2, 'two', 'b', 2)"
    )
    assert orders.run().error is None
    lost = lose(orders)
    produce(orders, lost.write(events(orders)[0][1]))
    orders.execute(
        "UPDATE T SET note = 'newer'", "TRUNCATE T", "INSERT INTO T VALUES (3, 'three', 'b', 3)"
    )
    assert orders.run().counts["quarantined"] == 1
    orders.execute("INSERT INTO T VALUES (4, 'four', 'b', 4)")
    assert orders.run().error is None
    before = orders.lake("id", "note")
    kept_rows = [] if at_the_run == "apply" else [(1, "newer"), (2, "newer")]
    assert before == [*kept_rows, (3, "three"), (4, "four")]
    restore(lost, orders)
    configure(orders, on_bad_message="quarantine", on_truncate=at_the_replay)
    assert replay(orders).records == 1
    assert orders.lake("id", "note") == before


@pytest.mark.breadth
def test_a_replay_applies_a_truncate_that_was_quarantined_itself(orders: Orders) -> None:
    configure(orders, on_bad_message="quarantine", on_truncate="ignore")
    orders.execute("INSERT INTO T VALUES (1, 'one', 'b', 1)", "TRUNCATE T")
    assert orders.run().error is None
    assert orders.lake("id") == [(1,)]
    _, truncate = (value for _, value in events(orders))
    lost = lose(orders)
    produce(orders, lost.write(truncate), key=None)
    orders.execute("INSERT INTO T VALUES (2, 'two', 'b', 2)")
    assert orders.run().counts["quarantined"] == 1
    restore(lost, orders)
    configure(orders, on_bad_message="quarantine", on_truncate="pause")
    with pytest.raises(PausedByPolicyError, match="on_truncate is pause") as paused:
        replay(orders)
    assert "repeat the replay" in paused.value.remedy
    configure(orders, on_bad_message="quarantine", on_truncate="apply")
    assert replay(orders).records == 1
    assert orders.lake("id") == [(2,)]


@settings(on_bad_message="quarantine")
@pytest.mark.breadth
def test_a_replay_is_refused_when_the_topic_lost_what_came_after(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'one', 'b', 1)")
    assert orders.run().error is None
    lost = lose(orders)
    first, _ = produce(orders, lost.write(events(orders)[0][1]), b"\x07")
    orders.execute("DELETE FROM T WHERE id = 1")
    assert orders.run().error is None
    restore(lost, orders)
    delete_records(shared.config.kafka, topic_of(orders), first + 1)
    with pytest.raises(LostHistoryError, match=f"offsets {first} to {first}") as caught:
        replay(orders)
    assert "resync" in caught.value.remedy
    assert (orders.state, orders.lake("id"), len(kept(orders))) == (State.INCREMENTAL, [], 2)


@settings(on_bad_message="quarantine")
@pytest.mark.breadth
def test_a_replay_leaves_out_again_what_still_cannot_be_read(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'one', 'b', 1)")
    assert orders.run().error is None
    lost = lose(orders)
    whole = events(orders)[0][1]
    orders.execute("DELETE FROM T WHERE id = 1")
    damaged, _ = produce(orders, whole[:-1], lost.write(whole))
    assert orders.run().error is None
    before = orders.newest.watermark
    restore(lost, orders)
    done = replay(orders)
    assert (done.records, [problem.offset for problem in done.left_out]) == (1, [damaged])
    assert [one.offset for one in kept(orders)] == [damaged]
    assert orders.lake("id", "note") == [(1, "one")]
    assert orders.newest.watermark == before


@pytest.mark.breadth
@settings(on_bad_message="quarantine")
def test_an_unchanged_value_is_not_taken_from_what_lacks_its_change(orders: Orders) -> None:
    orders.execute(
        "ALTER TABLE T ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO T VALUES (1, 'one', {BIG}, 1)",
        f"UPDATE T SET body = {BIG}",
    )
    assert orders.run().error is None
    inserted, updated = (value for _, value in events(orders))
    lost = lose(orders)
    # The row as before its update, whose event is the one that is lost.
    produce(orders, inserted, lost.write(updated))
    assert orders.run().counts == {"c": 1, "quarantined": 1}
    assert orders.lake("body") != orders.replication.truth(orders.name, "body")
    orders.execute("UPDATE T SET note = 'two'")
    assert orders.run().error is None
    orders.assert_equal()
    # All of it in one batch.
    produce(orders, inserted, lost.write(updated))
    orders.execute("UPDATE T SET note = 'three'")
    assert orders.run().counts == {"c": 1, "u": 1, "quarantined": 1}
    orders.assert_equal()


@pytest.mark.breadth
@settings(on_bad_message="quarantine")
def test_a_replay_reads_events_from_before_a_column_was_added(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'one', 'b', 1)")
    assert orders.run().error is None
    lost = lose(orders)
    whole = events(orders)[0][1]
    orders.execute("DELETE FROM T WHERE id = 1")
    produce(orders, lost.write(whole))
    assert orders.run().error is None
    orders.execute("ALTER TABLE T ADD COLUMN x int DEFAULT 5")
    with pytest.raises(StateError, match="has changed since its last run") as caught:
        replay(orders)
    assert caught.value.remedy.startswith("Let a run look at it first")
    orders.execute("INSERT INTO T VALUES (2, 'two', 'b', 2, 22)")
    assert orders.run().error is None
    orders.execute("UPDATE T SET x = 23")
    assert orders.run().error is None
    restore(lost, orders)
    assert replay(orders).records == 1
    assert orders.lake("id", "note", "x") == [(1, "one", 5), (2, "two", 23)]


def replayed_behind_a_dropped_column(orders: Orders) -> list[tuple[Any, ...]]:
    """The lake's keys and bodies after row 3's insert is quarantined and replayed.

    The column ``body`` is dropped between the quarantine and the replay.
    """
    orders.execute(
        "INSERT INTO T VALUES (1, 'one', 'b1', 1)", "INSERT INTO T VALUES (3, 'three', 'b3', 3)"
    )
    assert orders.run().error is None
    lost = lose(orders)
    produce(orders, lost.write(events(orders)[1][1]))
    orders.execute("INSERT INTO T VALUES (2, 'two', 'b2', 2)")
    assert orders.run().counts == {"c": 1, "quarantined": 1}
    orders.execute("ALTER TABLE T DROP COLUMN body")
    assert orders.run().error is None
    restore(lost, orders)
    assert replay(orders).records == 1
    return orders.lake("id", "body")


@pytest.mark.breadth
@settings(on_bad_message="quarantine")
def test_a_replay_leaves_other_rows_as_they_are(orders: Orders) -> None:
    assert replayed_behind_a_dropped_column(orders) == [(1, "b1"), (2, "b2"), (3, None)]


@settings(on_bad_message="quarantine")
def test_known_schemas_are_enough_while_the_registry_is_down(
    orders: Orders, shared: Replication
) -> None:
    def fresh() -> KeptSchemas:
        """A schema registry client as in a new process, which shares only the state store."""
        url = shared.config.kafka.registry.url
        return KeptSchemas(ConfluentRegistry(RegistryEndpoint(url)), url, shared.store)

    def run() -> RunResult:
        """Run the table with a new registry client.

        The run does not wait for more changes: the connector could not send them now, because
        its converter needs the registry.
        """
        record = shared.record(orders.name)
        (result,) = run_tables(shared.context(registry=fresh()), [record])
        return result

    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run(registry=fresh()).error is None
    orders.execute("UPDATE T SET note = 'b'")
    unknown = lose(orders).id
    shared.settle()
    registry = shared.database.stack.server("registry")
    registry.kill()
    try:
        with stamina.set_testing(True, attempts=2):
            assert run().error is None
            orders.assert_equal()
            # An outage is no reason to leave a record out, whatever the policy.
            (offset,) = send(orders, b"\x00" + unknown.to_bytes(4, "big") + b"body")
            result = run()
    finally:
        registry.start()
    assert result.state is State.FAILED
    assert result.error is not None
    assert result.error.error == "RegistryError"
    assert result.error.context["offset"] == str(offset)
    assert result.error.context["schema_id"] == str(unknown)
    assert "unreachable" in result.error.message
    assert kept(orders) == []


@pytest.mark.breadth
@settings(max_events_per_run=2)
def test_changes_of_transactions_of_two_billion_ids_ago_are_applied(orders: Orders) -> None:
    """Events have only the low 32 bits of a transaction id; these events have future ids."""
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    ((key, value),) = events(orders)
    schema = fastavro.parse_schema(
        json.loads(orders.replication.registry.schema(int.from_bytes(value[1:5], "big")))
    )
    event = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema)
    ahead = []
    for number in range(2, 6):
        event["after"]["id"] = number
        event["source"]["txId"] = (event["source"]["txId"] + 1_000_000) % 2**32
        fastavro.schemaless_writer(written := io.BytesIO(), schema, event)
        ahead.append(value[:5] + written.getvalue())
    produce(orders, *ahead, key=key)
    assert orders.run().error is None
    assert sorted(orders.lake("id")) == [(1,), (2,), (3,), (4,), (5,)]
