"""The events that `lineage` sends, their datasets, and the events that it sends again."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
import sqlalchemy as sa
import yaml
from openlineage.client.dataset.trimmers import KeyValueTrimmer
from typer.testing import CliRunner

from cdc.config import parse
from cdc.errors import ConfigError, SourceError
from cdc.store.attempt import Attempt
from cdc.store.error_record import ErrorRecord
from cdc.store.history import SchemaEntry
from cdc.store.recorded_change import RecordedChange
from cdc.store.table_state import Cause, State, TableRecord, transition
from cdc.store.tables import run_rows
from operate.cli import app
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.lineage import datasets, sending
from operate.lineage.datasets import Name, lake_name
from operate.lineage.sending import Lineage, LineageError, Wanted
from schemas.changes import DropColumn, Verdict
from schemas.table import Shard, TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal
from tests.unit.operate.lineage.conftest import to_file
from tests.unit.operate.lineage.lineage_shapes import checked
from tests.unit.operate.lineage.recorded_runs import COMMIT, ID, run

ATTEMPT = Attempt(
    UUID(int=1), NOW, "/lake/orders/attempt=1", start_offsets={0: 1}, handoff_offsets={0: 2}
)
CANARY = "canary-4711"


def sent(folder: Path) -> list[dict[str, Any]]:
    """The events in the file of the client's transport, checked against the specification."""
    file = folder / "events"
    return [checked(line) for line in file.read_text().splitlines()] if file.exists() else []


def published(services: Services, **facts: Any) -> TableRecord:
    """Store the record of a table whose copy was published, by all its changes of state."""
    record = services.store.put(table_record(ORDERS, State.REGISTERED, **facts))
    for state in (State.BOOTSTRAPPING, State.CATCHING_UP, State.INCREMENTAL):
        record = services.store.put(transition(record, state, at=NOW, attempt=ATTEMPT))
    return services.store.put(replace(record, last_commit=COMMIT))


def send(services: Services, **wanted: Any) -> int:
    since = wanted.pop("since", None)
    return Lineage(services, Wanted(wanted.pop("namespace", "ns"), **wanted), since).send()


def by_job(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in events if one["job"]["name"].endswith(f".{kind}")]


def test_a_run_is_a_run_of_a_job_with_its_datasets(services: Services, tmp_path: Path) -> None:
    published(services)
    services.store.record_run(run())
    assert send(services) == 4
    start, end = by_job(sent(tmp_path), "run")
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (start["eventTime"], end["eventTime"]) == (
        "2026-01-02T03:04:05+00:00",
        "2026-01-02T03:04:07.500000+00:00",
    )
    job = {"namespace": "ns", "name": "shop.public.orders.run"}
    assert {key: end["job"][key] for key in job} == job
    assert end["job"]["facets"]["jobType"]["integration"] == "TRIBUTARY"
    assert end["run"]["facets"]["processing_engine"]["name"] == "Tributary"
    named = [(one["namespace"], one["name"]) for one in (*end["inputs"], *end["outputs"])]
    assert named == [
        ("postgres://localhost:5432", "shop.public.orders"),
        ("kafka://localhost:9092", "t"),
        ("file", "/lake/orders"),
    ]
    assert named == [
        (one["namespace"], one["name"]) for one in (*start["inputs"], *start["outputs"])
    ]
    lake = end["outputs"][0]
    assert lake["outputFacets"]["outputStatistics"]["rowCount"] == 1234
    assert lake["facets"]["version"]["datasetVersion"] == COMMIT.instant
    columns = {one["name"]: one["type"] for one in lake["facets"]["schema"]["fields"]}
    assert columns["_cdc_op"] == "string"
    assert {name: columns[name] for name in ("id", "email", "note")} == {
        "id": "bigint",
        "email": "string",
        "note": "string",
    }


def test_each_column_names_the_column_that_it_comes_from(
    services: Services, tmp_path: Path
) -> None:
    published(services)
    services.store.record_run(run())
    send(services)
    fields = by_job(sent(tmp_path), "run")[1]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"id", "email"}, "a dropped column comes from nowhere"
    (origin,) = fields["id"]["inputFields"]
    assert (origin["namespace"], origin["field"]) == ("postgres://localhost:5432", "id")
    kinds = [
        (one["subtype"], one["masking"])
        for name in ("id", "email")
        for one in fields[name]["inputFields"][0]["transformations"]
    ]
    assert kinds == [("IDENTITY", False), ("TRANSFORMATION", True)]


def test_a_copy_creates_a_table_and_a_resync_overwrites_it(
    services: Services, tmp_path: Path
) -> None:
    record = published(services)
    send(services)
    start, end = by_job(sent(tmp_path), "copy")
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert change_of(end) == "CREATE"
    build = table_record(ORDERS, State.REGISTERED, generation=2, beside=True)
    build = services.store.put(build)
    for state in (State.BOOTSTRAPPING, State.CATCHING_UP):
        build = services.store.put(transition(build, state, at=NOW, attempt=ATTEMPT))
    services.store.promote(build, record)
    swapped = services.store.get(ORDERS)
    services.store.put(transition(swapped, State.INCREMENTAL, at=NOW))
    send(services)
    again, ended = by_job(sent(tmp_path), "copy")[2:]
    assert (again["eventType"], change_of(ended)) == ("START", "OVERWRITE")
    assert again["run"]["runId"] == ended["run"]["runId"] != end["run"]["runId"]


def change_of(event: dict[str, Any]) -> str | None:
    facet = event["outputs"][0]["facets"].get("lifecycleStateChange")
    return None if facet is None else facet["lifecycleStateChange"]


def test_a_copy_that_fails_and_one_that_is_paused(services: Services, tmp_path: Path) -> None:
    record = services.store.put(table_record(ORDERS, State.REGISTERED))
    record = services.store.put(transition(record, State.BOOTSTRAPPING, at=NOW, attempt=ATTEMPT))
    cause = Cause(error=SourceError(f"no {CANARY}", remedy="wait"))
    record = services.store.put(transition(record, State.FAILED, at=NOW, cause=cause))
    record = services.store.put(transition(record, State.BOOTSTRAPPING, at=NOW))
    record = services.store.put(transition(record, State.CATCHING_UP, at=NOW))
    services.store.put(transition(record, State.PAUSED, at=NOW, cause=Cause(reason="migration")))
    send(services)
    events = by_job(sent(tmp_path), "copy")
    assert [one["eventType"] for one in events] == ["START", "FAIL", "START", "ABORT"]
    assert CANARY not in json.dumps(events)
    assert events[0]["run"]["runId"] != events[2]["run"]["runId"]


def test_a_schema_change_alters_the_lake(services: Services, tmp_path: Path) -> None:
    published(services)
    dropped = RecordedChange.of(DropColumn(verdict=Verdict.FILL, why="y", name="note"))
    later = NOW + timedelta(hours=1)
    entry = SchemaEntry(ORDERS, 1, 2, later, (7,), (dropped,), "followed", "k", columns=(ID,))
    services.store.record_run(run())
    services.store.record_schema(entry)
    services.store.record_schema(replace(entry, outcome="paused", key="k2", columns=()))
    send(services)
    start, end, begun, stopped = by_job(sent(tmp_path), "schema")
    assert (start["eventType"], end["eventType"], change_of(end)) == ("START", "COMPLETE", "ALTER")
    names = [one["name"] for one in end["outputs"][0]["facets"]["schema"]["fields"]]
    assert names[-1] == "id"
    assert (begun["eventType"], stopped["eventType"], change_of(stopped)) == ("START", "FAIL", None)
    assert "note" in stopped["run"]["facets"]["errorMessage"]["message"]
    earlier = by_job(sent(tmp_path), "run")[1]["outputs"][0]["facets"]
    assert "schema" not in earlier, "the columns from before the change are not known"


def test_a_run_of_a_former_generation_has_its_own_columns(
    services: Services, tmp_path: Path
) -> None:
    record = published(services)
    dropped = RecordedChange.of(DropColumn(verdict=Verdict.FILL, why="y", name="note"))
    entry = SchemaEntry(ORDERS, 1, 2, NOW, (7,), (dropped,), "followed", "k", columns=(ID,))
    services.store.record_schema(entry)
    services.store.record_run(run())
    services.store.put(replace(record, generation=2))
    send(services)
    fields = by_job(sent(tmp_path), "run")[1]["outputs"][0]["facets"]["schema"]["fields"]
    assert [one["name"] for one in fields if not one["name"].startswith("_cdc_")] == ["id"]


def test_a_failure_has_no_message_by_default(services: Services, tmp_path: Path) -> None:
    published(services)
    error = ErrorRecord("LakeError", f"value {CANARY} cannot be cast", "look", {})
    services.store.record_run(run(error=error, commits=0, events=0))
    send(services)
    end = by_job(sent(tmp_path), "run")[1]
    assert end["eventType"] == "FAIL"
    assert end["run"]["facets"]["errorMessage"]["message"].startswith("LakeError: ")
    assert "version" not in end["outputs"][0]["facets"]
    assert end["outputs"][0]["outputFacets"] == {}
    assert CANARY not in (tmp_path / "events").read_text()
    send(services, namespace="other", messages=True)
    assert CANARY in (tmp_path / "events").read_text()


def test_no_secret_is_in_an_event(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, the client sends the URL of the working folder's Git remote, with its login."""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "config").write_text(f'[remote "origin"]\nurl = https://u:{CANARY}@example.com/r\n')
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", CANARY)
    published(services)
    services.store.record_run(run())
    send(services)
    text = (tmp_path / "events").read_text()
    assert CANARY not in text
    assert "sourceCodeLocation" not in text


def test_a_truncate_is_named(services: Services, tmp_path: Path) -> None:
    published(services)
    services.store.record_run(run(counts={"c": 1, "t": 1}))
    send(services)
    assert change_of(by_job(sent(tmp_path), "run")[1]) == "TRUNCATE"


def test_what_was_sent_is_sent_again_only_on_request(services: Services, tmp_path: Path) -> None:
    published(services)
    services.store.record_run(run())
    assert [send(services), send(services)] == [4, 0]
    first = sent(tmp_path)
    assert send(services, since=datetime(2000, 1, 1, tzinfo=timezone.utc)) == 4
    assert sent(tmp_path)[4:] == first, "the same runs again"
    assert send(services, since=datetime.now(timezone.utc) + timedelta(hours=1)) == 0
    assert send(services, namespace="other") == 4
    services.store.record_run(run(run_id="r2"))
    assert send(services) == 2
    ids = [one["run"]["runId"] for one in by_job(sent(tmp_path), "run")]
    assert len(set(ids)) == 2, "the same runs in each namespace"


def test_an_entry_that_appears_late_is_sent(services: Services, tmp_path: Path) -> None:
    """A transaction can take a lower number than another one, and commit after it."""
    for name in ("r1", "r2", "r3"):
        services.store.record_run(run(run_id=name))
    with services.store.transaction() as connection:
        late = connection.execute(sa.select(run_rows).where(run_rows.c.id == 2)).one()
        connection.execute(sa.delete(run_rows).where(run_rows.c.id == 2))
    assert send(services) == 4
    with services.store.transaction() as connection:
        connection.execute(sa.insert(run_rows).values(**late._mapping))
        connection.execute(sa.delete(run_rows).where(run_rows.c.id == 3))
    assert send(services, since=datetime.now(timezone.utc) + timedelta(hours=1)) == 2
    assert send(services) == 0


def test_since_sends_also_what_was_never_sent(services: Services, tmp_path: Path) -> None:
    """The receiver was down for days, and the operator asks for the events of the last hours."""
    services.store.record_run(run())
    assert send(services) == 2
    services.store.record_run(run(run_id="r2"))
    with services.store.transaction() as connection:
        connection.execute(sa.update(run_rows).values(noted_at=NOW.timestamp()))
    services.store.record_run(run(run_id="r3"))
    assert send(services, since=datetime.now(timezone.utc) - timedelta(hours=1)) == 4
    assert send(services, since=datetime.now(timezone.utc) - timedelta(hours=1)) == 2
    assert send(services) == 0
    other = {"namespace": "new", "since": datetime.now(timezone.utc) - timedelta(hours=1)}
    assert send(services, **other) == 2, "a new namespace begins there"


def test_many_entries_are_sent_in_parts(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MOST", 2)
    for number in range(5):
        services.store.record_run(run(run_id=f"r{number}", instant=str(number)))
    assert send(services) == 10
    versions = [
        one["outputs"][0]["facets"]["version"]["datasetVersion"]
        for one in sent(tmp_path)
        if one["eventType"] == "COMPLETE"
    ]
    assert versions == ["0", "1", "2", "3", "4"]


def test_events_that_a_receiver_refuses_are_sent_by_the_next_command(
    services: Services, tmp_path: Path
) -> None:
    services.store.record_run(run())
    to_file(tmp_path / "openlineage.yml", tmp_path / "no such folder" / "events")
    with pytest.raises(LineageError, match="does not take them"):
        send(services)
    to_file(tmp_path / "openlineage.yml", tmp_path / "events")
    assert send(services) == 2


@pytest.mark.parametrize(
    "transport",
    [
        {
            "type": "kafka",
            "topic": "lineage",
            "config": {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "300"},
        },
        {"type": "async_http", "url": "http://127.0.0.1:1", "retry": {"total": 0}},
    ],
    ids=lambda transport: transport["type"],
)
def test_a_transport_that_only_logs_what_is_lost_loses_nothing(
    services: Services, tmp_path: Path, transport: dict[str, Any]
) -> None:
    services.store.record_run(run())
    services.store.record_run(run(run_id="r2"))
    (tmp_path / "openlineage.yml").write_text(yaml.safe_dump({"transport": transport}))
    with pytest.raises(LineageError, match="does not take them"):
        send(services)
    to_file(tmp_path / "openlineage.yml", tmp_path / "events")
    assert send(services) == 4


def test_the_first_event_that_is_not_delivered_ends_the_command(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Kafka transport waits for each event until its timeout, by default several minutes."""
    from openlineage.client.transport.kafka import KafkaTransport

    for name in ("r1", "r2", "r3"):
        services.store.record_run(run(run_id=name))
    settings = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "300"}
    transport = {"type": "kafka", "topic": "lineage", "config": settings}
    (tmp_path / "openlineage.yml").write_text(yaml.safe_dump({"transport": transport}))
    asked, emit = [], KafkaTransport.emit
    monkeypatch.setattr(
        KafkaTransport, "emit", lambda self, event: (asked.append(event), emit(self, event))
    )
    with pytest.raises(LineageError, match="does not take them"):
        send(services)
    assert len(asked) == 1


def test_without_a_receiver_nothing_counts_as_sent(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.store.record_run(run())
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with pytest.raises(ConfigError, match="no receiver"):
        send(services)
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    (tmp_path / "openlineage.yml").write_text("{}")
    with pytest.raises(ConfigError, match="no receiver"):
        send(services)
    (tmp_path / "openlineage.yml").write_text("transport: {type: http}\n")
    with pytest.raises(ConfigError, match="cannot be used"):
        send(services)
    to_file(tmp_path / "openlineage.yml", tmp_path / "events")
    assert send(services) == 2


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/lake/a b/orders", Name("file", "/lake/a b/orders")),
        ("file:/lake/a%20b", Name("file", "/lake/a b")),
        ("s3a://bucket/lake/orders", Name("s3://bucket", "lake/orders")),
        ("gs://bucket/lake", Name("gs://bucket", "lake")),
        (
            "abfss://c@acc.dfs.core.windows.net/lake",
            Name("abfss://c@acc.dfs.core.windows.net", "lake"),
        ),
        ("hdfs://nn:8020/lake", Name("hdfs://nn:8020", "/lake")),
    ],
)
def test_the_names_of_folders(url: str, expected: Name) -> None:
    assert lake_name(url) == expected


def test_a_reader_of_a_generation_names_the_same_dataset() -> None:
    folder = "s3a://bucket/lake/orders"
    read = lake_name(f"{folder}/attempt={UUID(int=1)}")
    assert KeyValueTrimmer().trim(read.name) == lake_name(folder).name


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_the_names_of_tables_of_mysql(kind: str, services: Services, tmp_path: Path) -> None:
    document = minimal()
    source = {key: document["sources"]["shop"][key] for key in ("credentials",)}
    document["sources"] = {"erp": {"kind": kind, "primary": {"host": "my"}, **source}}
    config = parse(yaml.safe_dump(document), base=tmp_path)
    named = datasets.source_name(config, TableId("erp", "sales", "orders"))
    assert named == Name(f"{kind}://my:3306", "sales.orders")
    assert datasets.source_name(config, ORDERS) is None


def test_a_shard_writes_to_the_shared_table(services: Services, tmp_path: Path) -> None:
    published(services, shard=Shard("all", "eu", "_shard", "s3a://bucket/all"))
    services.store.record_run(run())
    send(services)
    (lake,) = by_job(sent(tmp_path), "run")[1]["outputs"]
    assert (lake["namespace"], lake["name"]) == ("s3://bucket", "all")


def test_the_name_in_the_metastore_is_another_name(services: Services, tmp_path: Path) -> None:
    document = minimal()
    document["catalog"] = {"metastore": "thrift://meta:9083,thrift://other:9083"}
    config = parse(yaml.safe_dump(document), base=tmp_path)
    facet = datasets.catalog_name(config, table_record(ORDERS))
    assert [(one.namespace, one.name, one.type) for one in facet.identifiers] == [
        ("hive://meta:9083", "shop_public.orders", "TABLE")
    ]
    facet = datasets.catalog_name(config, table_record(ORDERS, shown_as="old.orders"))
    assert facet.identifiers[0].name == "old.orders"


def test_a_table_that_is_gone_keeps_its_names(services: Services, tmp_path: Path) -> None:
    services.store.record_run(run())
    send(services)
    end = sent(tmp_path)[1]
    assert [one["name"] for one in end["inputs"]] == ["shop.public.orders"]
    assert end["outputs"][0]["name"].endswith("/shop/public/orders")


def test_the_command(services: Services, tmp_path: Path) -> None:
    published(services)
    services.store.record_run(run())
    shown = CliRunner().invoke(app, ["lineage", "--dry-run", "--namespace", "ns"])
    assert shown.exit_code == 0, shown.output
    assert len([checked(line) for line in shown.stdout.splitlines()]) == 4
    assert sent(tmp_path) == []
    found = CliRunner().invoke(app, ["lineage", "--output", "json"])
    assert json.loads(found.stdout) == {"events": 4}
    assert {one["job"]["namespace"] for one in sent(tmp_path)} == {"tributary"}
    found = CliRunner().invoke(app, ["lineage"], env={"OPENLINEAGE_NAMESPACE": "lake"})
    assert found.stdout == "Sent 4 events.\n"
    found = CliRunner().invoke(app, ["lineage", "--since", "soon"])
    assert found.exit_code == ExitCode.USAGE


def test_follow_goes_on_after_a_failure(
    services: Services, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    services.store.record_run(run())
    to_file(tmp_path / "openlineage.yml", tmp_path / "no such folder" / "events")

    class Looks(threading.Event):
        """A stop event, set after three pauses; the receiver is there from the first pause on."""

        pauses: ClassVar[list[float]] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.pauses.append(timeout)
            to_file(tmp_path / "openlineage.yml", tmp_path / "events")
            if len(self.pauses) == 2:
                services.store.record_run(run(run_id="r2"))
            return len(self.pauses) == 3

    looks = Looks()
    assert list(Lineage(services, Wanted("ns")).follow(5.0, looks)) == [2, 2]
    assert looks.pauses == [10.0, 5.0, 5.0]
    assert "does not take them" in caplog.text
