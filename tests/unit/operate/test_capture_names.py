"""Names of captures: which names two captures must not share, and which names a capture keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cdc.capture.onboarded_names import captured_by
from cdc.config import parse
from cdc.debezium import CaptureNames, Heartbeat, names
from cdc.errors import CaptureError, ConfigError
from cdc.runtime.progress import NullProgress
from cdc.sources.source_facts import ServerIdentity
from cdc.store.kept_type_looks import KeptTypeLooks, TypeLook
from cdc.store.table_state import State, TierCapture, transition
from operate import tier_capture
from operate.capture_names import (
    refuse_edited_names,
    refuse_other_database,
    refuse_other_installations,
    refuse_other_readers,
    refuse_other_writers,
    refuse_shared_names,
    refuse_shared_topics,
)
from operate.context import Services
from operate.onboard import register
from operate.table_notes import edit_notes
from schemas.table import TableId
from tests.records import NOW, table_record
from tests.unit.cdc.configuration import minimal

ONE = CaptureNames("shop", "default", "p1", "s1", "c1", "shop_default", "postgres")
OTHER = CaptureNames("shop", "slow", "p2", "s2", "c2", "shop_slow", "postgres")


def test_captures_with_names_of_their_own_are_accepted() -> None:
    refuse_shared_names([ONE, OTHER])


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("connector", "c1"),
        ("publication", "p1"),
        ("topic_prefix", "shop_default"),
        ("topic_prefix", "shop.default"),
    ],
)
def test_two_tiers_with_one_name_are_refused(field: str, name: str) -> None:
    with pytest.raises(CaptureError, match="shop/default and shop/slow would share") as refused:
        refuse_shared_names([ONE, replace(OTHER, **{field: name})])

    assert name in str(refused.value)
    assert "publication" in str(refused.value.remedy)


def test_publications_of_two_databases_may_have_one_name() -> None:
    refuse_shared_names([ONE, replace(OTHER, source="mail", publication="p1")])


def test_sources_without_publications_share_none() -> None:
    first = replace(ONE, publication=None, slot=None, kind="mysql")
    refuse_shared_names([first, replace(OTHER, publication=None, slot=None, kind="mysql")])


def services(folder: Path, **of_source: str) -> Services:
    """The services of a process that has read a configuration, with keys of its source changed."""
    document: dict[str, Any] = minimal()
    document["sources"]["shop"] |= of_source
    return Services(parse(yaml.safe_dump(document), base=folder), NullProgress())


KNOWN, NEW = TableId("shop", "public", "known"), TableId("shop", "public", "new")


@pytest.mark.parametrize("setting", ["topic_prefix", "slot", "publication"])
def test_a_capture_keeps_the_names_with_which_its_tables_were_onboarded(
    tmp_path: Path, setting: str
) -> None:
    """Else a second capture would be created, and nothing would watch or remove the first one."""
    before = services(tmp_path)
    register(before, KNOWN)
    (group,) = tier_capture.groups(before, [NEW])
    assert refuse_edited_names(before, group) == {}

    after = services(tmp_path, **{setting: "v2_{tier}"})
    (group,) = tier_capture.groups(after, [NEW])
    refused = refuse_edited_names(after, group)
    assert list(refused) == [NEW]
    assert f"sources.shop.{setting} gave" in refused[NEW].message
    with pytest.raises(ConfigError, match=r"shop:public\.known was onboarded with other names"):
        tier_capture.prepare(after, group)

    (note,) = edit_notes(after, after.store.tables()[0])
    assert note.startswith(refused[NEW].message)
    assert f"Set sources.shop.{setting} back" in note

    record = after.store.tables()[0]
    assert after.capture_of(record) == before.capture(KNOWN), "this one is to be removed"
    after.store.put(transition(record, State.RETIRED, at=NOW))
    assert refuse_edited_names(after, group) == {}
    assert edit_notes(after, after.store.tables()[0]) == []
    register(after, KNOWN)
    assert after.capture_of(after.store.tables()[0]) == group.capture
    before.close()
    after.close()


def test_a_move_keeps_the_names_of_the_capture_that_the_table_has_joined(tmp_path: Path) -> None:
    """Else a repeated move would join another capture, and forget the first one with its slot."""
    before = services(tmp_path)
    register(before, KNOWN)
    other = captured_by(names("shop", before.config.source("shop"), "fast"), KNOWN)
    before.store.put(replace(before.store.tables()[0], other=other))

    after = services(tmp_path, slot="v2_{tier}")
    fast = names("shop", after.config.source("shop"), "fast")
    refused = refuse_edited_names(after, tier_capture.Group(fast, (KNOWN,)))
    assert "sources.shop.slot gave" in refused[KNOWN].message
    before.close()
    after.close()


def test_no_second_connector_is_made_for_the_same_topics() -> None:
    """The first connector is left by a command that was killed before it recorded the table."""
    mine, other = {"topic.prefix": "shop_default"}, {"topic.prefix": "shop_slow"}
    refuse_other_writers({"c1": mine, "c9": mine}, ONE)
    refuse_other_writers({"c9": other, "sink": {}}, ONE)
    with pytest.raises(CaptureError, match="connector c9 already writes to topics with the prefix"):
        refuse_other_writers({"c9": mine}, ONE)


class Slot:
    """A fake replication slot, as its server shows it."""

    def __init__(self, reader: str | None = None, beat_age_s: float | None = None) -> None:
        self._reader, self._beat_age_s = reader, beat_age_s
        self.there = True
        self.other_slots: list[str] = []

    def others(self) -> list[str]:
        return self.other_slots

    def require_own(self) -> None:
        pass

    def shown_reader(self) -> str | None:
        return self._reader

    def exists(self) -> bool:
        return self.there

    def beat_age_s(self) -> float | None:
        return self._beat_age_s


def at(
    monkeypatch: pytest.MonkeyPatch, folder: Path, slot: Slot | None, *connectors: str
) -> Services:
    """The services of an installation with these connectors, on a source with this slot."""
    monkeypatch.setattr("operate.capture_names._SESSION_ENDS_S", 0.0)
    made = services(folder)
    connect = SimpleNamespace(connector=lambda name: {} if name in connectors else None)
    monkeypatch.setattr(Services, "connect", connect)
    on_source = SimpleNamespace(kept_log=slot, sent_tables=None)
    monkeypatch.setattr(made, "source", lambda _: SimpleNamespace(capture=lambda _: on_source))
    return made


READ = Slot("`Debezium Streaming` on 10.0.0.5, process 7", 0.5)
BETWEEN = Slot(None, 12.0)
"""A slot without a reader, as while the worker of the slot's connector starts again."""


@pytest.mark.parametrize(
    ("slot", "told"), [(READ, r"is read by `Debezium Streaming` on 10\.0"), (BETWEEN, "12 s ago")]
)
def test_the_slot_of_another_installation_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slot: Slot, told: str
) -> None:
    staging = at(monkeypatch, tmp_path, slot)
    names = staging.capture(NEW)
    with pytest.raises(CaptureError, match=told) as refused:
        refuse_other_readers(staging, names)
    assert f"has no connector {names.connector}" in refused.value.message
    assert "set other slot, publication and topic_prefix for source shop" in refused.value.remedy
    staging.close()


@pytest.mark.parametrize("slot", [None, Slot(), Slot(None, 3600.0)])
def test_a_slot_that_nobody_reads_can_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slot: Slot | None
) -> None:
    made = at(monkeypatch, tmp_path, slot)
    refuse_other_readers(made, made.capture(NEW))
    made.close()


def test_a_fresh_heartbeat_can_be_that_of_a_connector_that_was_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A person has deleted the connector, and runs the command that creates it again."""
    slot = Slot(None, 12.0)
    made = at(monkeypatch, tmp_path, slot)
    names = made.capture(NEW)
    register(made, KNOWN)
    refuse_other_readers(made, names)
    made.store.delete(KNOWN)
    with pytest.raises(CaptureError):
        refuse_other_readers(made, names)
    KeptTypeLooks(made.store).move(names.connector, None, TypeLook("", {}))
    refuse_other_readers(made, names)
    KeptTypeLooks(made.store).forget(names.connector)
    slot.there = False
    refuse_other_readers(made, names)
    slot.there = True

    register(made, KNOWN)
    monkeypatch.setattr(slot, "_reader", "another program")
    with pytest.raises(CaptureError, match="is read by another program"):
        refuse_other_readers(made, names)
    made.close()


def test_a_slot_is_the_connectors_that_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = services(tmp_path).capture(NEW)
    made = at(monkeypatch, tmp_path, READ, names.connector)
    refuse_other_readers(made, names)
    made.close()


class Foreign(Slot):
    """A slot of the same name for another database of the server."""

    def require_own(self) -> None:
        raise CaptureError("it is of another database", remedy="Leave it.")


def test_a_slot_of_another_database_is_refused_though_a_connector_of_its_name_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = services(tmp_path).capture(NEW)
    made = at(monkeypatch, tmp_path, Foreign(), names.connector)
    with pytest.raises(CaptureError, match="of another database"):
        refuse_other_readers(made, names)
    made.close()


def on_source(
    monkeypatch: pytest.MonkeyPatch, made: Services, slot: Slot, publication: SimpleNamespace
) -> None:
    """Let the source have a slot and a publication, and Kafka Connect no connector."""
    found = SimpleNamespace(
        kept_log=slot, sent_tables=publication, removal=lambda *_, **__: ["SELECT drop_it();"]
    )
    monkeypatch.setattr(made, "source", lambda _: SimpleNamespace(capture=lambda _: found))
    connect = SimpleNamespace(connector=lambda _: None, configs=dict)
    monkeypatch.setattr(Services, "connect", connect)
    monkeypatch.setattr("operate.capture_names._refuse_other_server", lambda *_: None)


def publication(*tables: TableId, there: bool = True) -> SimpleNamespace:
    return SimpleNamespace(title="publication p", exists=lambda: there, tables=lambda: [*tables])


def test_a_slot_without_our_publication_is_not_dropped_by_who_never_had_the_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a publication, the slot looks unreadable, but another installation may use it.

    `onboard` creates its publication before its slot.
    """
    slot = Slot()
    made = at(monkeypatch, tmp_path, slot)
    names = made.capture(NEW)
    on_source(monkeypatch, made, slot, publication(there=True))
    refuse_other_installations(made, names, {})
    on_source(monkeypatch, made, slot, publication(there=False))
    with pytest.raises(CaptureError, match="but publication p does not") as refused:
        refuse_other_installations(made, names, {})
    assert "run on the server: SELECT drop_it();" in refused.value.remedy

    monkeypatch.setattr(Services, "connect", running())
    refuse_other_installations(made, names, {})
    on_source(monkeypatch, made, slot, publication(there=False))
    register(made, KNOWN)
    refuse_other_installations(made, names, {})
    made.close()


def test_the_publication_of_another_installation_is_not_shared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other one has its own slot. The last `offboard` here would drop its publication."""
    slot = Slot()
    slot.there, slot.other_slots = False, ["theirs"]
    made = at(monkeypatch, tmp_path, slot)
    names = made.capture(NEW)
    on_source(monkeypatch, made, slot, publication(KNOWN))
    with pytest.raises(CaptureError, match=r"already has shop:public\.known, slot .* theirs") as no:
        refuse_other_installations(made, names, {})
    assert "set other slot, publication and topic_prefix for source shop" in no.value.remedy
    assert no.value.context["field"] == "sources.shop.publication"
    assert "run on the source: SELECT drop_it();" in no.value.remedy
    made.close()


@pytest.mark.parametrize("case", ["empty", "no reader", "slot", "connector", "own tier", "begun"])
def test_a_publication_that_is_this_installations_has_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    slot = Slot()
    slot.there, slot.other_slots = case == "slot", [] if case == "no reader" else ["theirs"]
    made = at(monkeypatch, tmp_path, slot)
    names, tables = made.capture(NEW), () if case == "empty" else (KNOWN,)
    on_source(monkeypatch, made, slot, publication(*tables))
    if case == "connector":
        monkeypatch.setattr(Services, "connect", running())
    elif case == "own tier":
        slow = captured_by(replace(names, tier="slow", slot="theirs"), KNOWN)
        made.store.put(table_record(KNOWN, State.INCREMENTAL, tier="slow", capture=slow.capture))
    elif case == "begun":  # an `onboard` was killed before it had made the slot
        KeptTypeLooks(made.store).move(names.connector, None, TypeLook("", {}))
    refuse_other_installations(made, names, {})
    made.close()


class Topics:
    """Fake heartbeats in Kafka; the newest is from ``server``, and ``age_s`` seconds old."""

    def __init__(self, server: str, age_s: float) -> None:
        self.server, self.sent = server, datetime.now(timezone.utc) - timedelta(seconds=age_s)

    def newest_times(self, topics: list[str]) -> dict[str, datetime]:
        return dict.fromkeys(topics, self.sent)


@pytest.mark.parametrize(
    ("server", "age_s", "refused"),
    [("prod", 12.0, True), ("prod", 3600.0, False), ("staging", 12.0, False)],
)
def test_topics_to_which_another_environment_writes_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str, age_s: float, refused: bool
) -> None:
    """The other environment has another Kafka Connect and server, so only Kafka shows it."""
    made = at(monkeypatch, tmp_path, Slot())
    names, topics = made.capture(NEW), Topics(server, age_s)
    beat = Heartbeat("s", server, 1, topics.sent, None, 7)
    monkeypatch.setattr("operate.capture_names.latest_heartbeat", lambda *_: beat)
    monkeypatch.setattr(Services, "kafka", topics)
    monkeypatch.setattr(Services, "schemas", None)
    connect = SimpleNamespace(connector=lambda _: None, configs=dict)
    monkeypatch.setattr(Services, "connect", connect)
    on_source = SimpleNamespace(kept_log=Slot(), sent_tables=None)
    here = ServerIdentity("staging", 1, in_recovery=False)
    source = SimpleNamespace(capture=lambda _: on_source, identity=lambda: here)
    monkeypatch.setattr(made, "source", lambda _: source)
    if refused:
        with pytest.raises(CaptureError, match="has a heartbeat of server prod, of 12 s ago") as no:
            refuse_other_installations(made, names, {})
        assert names.heartbeat_topic in no.value.message
        assert "set another topic_prefix for source shop" in no.value.remedy
        register(made, KNOWN)
    refuse_other_installations(made, names, {})
    made.close()


def running(**settings: str) -> SimpleNamespace:
    """A fake Kafka Connect in which each connector has these settings."""
    return SimpleNamespace(connector=lambda _: settings, configs=dict)


PROD = {"database.hostname": "prod-db", "database.port": "5432", "database.dbname": "shop"}


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_the_connector_of_another_environment_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The capture of that connector looks lost here, and the product recreates lost captures."""
    staging = at(monkeypatch, tmp_path, None)
    monkeypatch.setattr(Services, "connect", running(**PROD))
    names = staging.capture(NEW)
    wanted = {**PROD, "database.hostname": "staging-db"}
    if kind == "mysql":
        del wanted["database.dbname"]
    monkeypatch.setattr("operate.tier_capture.wanted_connector", lambda *_: wanted)
    with pytest.raises(
        CaptureError, match="reads prod-db:5432/shop, but source shop is"
    ) as refused:
        tier_capture.prepare(staging, tier_capture.Group(names, (NEW,)))
    assert "source shop is staging-db:5432" in refused.value.message
    assert "set other slot, publication and topic_prefix for source shop" in refused.value.remedy
    staging.close()


def test_a_connector_that_was_here_can_be_taken_to_another_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = at(monkeypatch, tmp_path, None)
    monkeypatch.setattr(Services, "connect", running(**PROD))
    names, moved = made.capture(NEW), {**PROD, "database.port": "5433"}
    refuse_other_database(made, names, {**PROD, "database.hostname": "PROD-DB"})
    with pytest.raises(CaptureError, match="5433"):
        refuse_other_database(made, names, moved)
    with pytest.raises(CaptureError, match="archive"):
        refuse_other_database(made, names, {**PROD, "database.dbname": "archive"})
    KeptTypeLooks(made.store).move(names.connector, None, TypeLook("", {}))
    refuse_other_database(made, names, moved)
    KeptTypeLooks(made.store).forget(names.connector)
    register(made, KNOWN)
    (record,) = made.store.tables()
    made.store.put(transition(record, State.RETIRED, at=NOW))
    refuse_other_database(made, names, moved)
    made.close()


def test_a_table_that_moves_shares_its_topic_with_nobody(tmp_path: Path) -> None:
    """Until the move has ended, the table's record can have the former tier."""
    made = services(tmp_path)
    joins, built, new = (TableId("shop", "public", name) for name in ("a b", "e f", "a_b"))
    (group,) = tier_capture.groups(made, [new, joins, renamed(built)])
    assert set(refuse_shared_topics(made, group)) == {new, joins}
    here, there = group.capture.tier, "another"
    other = TierCapture(here, "t", None)
    made.store.put(table_record(joins, State.INCREMENTAL, tier=there, other=other))
    made.store.put(table_record(built, State.INCREMENTAL, tier=there))
    made.store.put(table_record(built, State.BOOTSTRAPPING, tier=here, beside=True))
    refused = refuse_shared_topics(made, group)
    assert set(refused) == {new, renamed(built)}, "a move goes on"
    assert f"table {new} and {joins} would both write to topic" in refused[new].message
    made.close()


def renamed(table: TableId) -> TableId:
    """Another table, whose name gives the same topic as this table's name."""
    return replace(table, name=table.name.replace(" ", "_"))
