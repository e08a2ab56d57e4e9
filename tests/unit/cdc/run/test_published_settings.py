"""A process with old settings does not replace a copy that another one made with newer settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from bootstrap.handoff import bootstrap_table
from bootstrap.resync import _replace_serving_generation, resync_table
from cdc.capture.gathering import Captures
from cdc.capture.position_check import TopicFacts
from cdc.config import parse
from cdc.errors import LakeError, OlderSettingsError, SchemaChangeError
from cdc.run import RunContext, cycle, run_table
from cdc.run import table as run_module
from cdc.run.comparison import SettingsDigests, settings_digest, settings_digests
from cdc.run.published_settings import PublishedSettings
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.error_record import ErrorRecord
from cdc.store.table_state import State, TableRecord
from operate.automatic_resync import Unattended
from operate.context import Services
from operate.discover import followed
from operate.exit_codes import ExitCode
from operate.onboard import register
from operate.run import Runs
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

RESYNC = {"defaults": {"on_incompatible": "resync"}}
EDITED = {"defaults": {"on_incompatible": "resync", "columns": {"mask": ["email"]}}}
OWN, NEWER = "own", "newer"


def made(digest: str | None, number: int = 1, policies: str | None = OWN) -> TableRecord:
    digests = {"settings_digest": digest, "policies_digest": policies}
    return table_record(attempt=Attempt(UUID(int=number), NOW, "/a", **digests))


def refuses(known: PublishedSettings, record: TableRecord, digest: str = OWN) -> bool:
    try:
        known.check(record, SettingsDigests(digest, OWN))
    except OlderSettingsError as error:
        return known.refusal(record) is error
    assert known.refusal(record) is None
    return False


def test_an_attempt_from_before_the_start_is_that_of_older_settings() -> None:
    """The operator has edited the configuration before the process started."""
    known = PublishedSettings([made("older")])
    assert not refuses(known, made("older"))
    assert not refuses(PublishedSettings(), made("older")), "a process that noted nothing"


@pytest.mark.parametrize(
    ("at_start", "now"),
    [
        ([made(OWN)], made(NEWER, 2)),
        ([made("older")], made(NEWER, 2)),
        ([made(OWN)], made(NEWER)),
        ([], made(NEWER)),
        ([table_record()], made(NEWER)),
        ([made(OWN)], made(OWN, policies=NEWER)),
        ([], made(OWN, policies=NEWER)),
    ],
    ids=[
        "copied",
        "copied by two edits",
        "followed in place",
        "onboarded",
        "first copy",
        "followed by other policies",
        "onboarded with other policies",
    ],
)
def test_what_was_made_later_with_other_settings_is_newer(
    at_start: list[TableRecord], now: TableRecord
) -> None:
    known = PublishedSettings(at_start)
    assert refuses(known, now)
    assert refuses(known, now), "it stays so"
    assert not refuses(known, made(OWN, 3)), "somebody went back to these settings"


def test_what_this_process_made_itself_may_be_made_again() -> None:
    """The hash key, which is in a file, can change while the process runs."""
    known = PublishedSettings([])
    assert not refuses(known, made(OWN))
    assert not refuses(known, made(OWN), "own with another key")
    begun = made("begun", 5)
    assert begun.attempt is not None
    known.note(begun.attempt)
    assert not refuses(known, begun)
    assert not refuses(known, made(None, 6)), "from a version that noted no settings"
    assert not refuses(known, made(OWN, 7, policies=None)), "from one that noted no policies"


class Process:
    """A process that has read a configuration, and has no servers."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        config = parse(yaml.safe_dump({**minimal(), **document}), base=folder)
        self.services = Services(config, NullProgress())
        self.services.__dict__.update(kafka=None, schemas=None, connect=None)
        self.store = self.services.store

    def digest(self) -> str:
        config = self.services.config
        return settings_digest(config.table_settings(ORDERS), config.lake)

    def copies(self, number: int, state: State = State.INCREMENTAL, **facts: Any) -> TableRecord:
        """Store the table's record that a copy by this process leaves."""
        record = self.store.get(ORDERS)
        assert record is not None
        config = self.services.config
        digests = settings_digests(config.table_settings(ORDERS), config.lake)
        attempt = Attempt(UUID(int=number), NOW, f"/{number}", **digests._asdict())
        return self.store.put(replace(record, state=state, attempt=attempt, **facts))


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, Any]], Process]]:
    monkeypatch.setattr(Services, "spark", None)
    monkeypatch.setattr(RunContext, "spark", None)
    started: list[Process] = []

    def begin(document: dict[str, Any]) -> Process:
        started.append(Process(tmp_path, document))
        if len(started) == 1:
            register(started[0].services, ORDERS)
        return started[-1]

    yield begin
    for one in started:
        one.services.close()


def reached(*_: object) -> None:
    raise LakeError("the run has reached the lake", remedy="Nothing.")


def test_a_run_leaves_a_table_alone_that_another_process_has_resynced(
    start: Callable[[dict[str, Any]], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "check_serving", reached)
    old = start(RESYNC)
    old.copies(1)
    runs = Runs(old.services, followed(old.services, []))
    new = start(EDITED)
    published = new.copies(2, generation=2)

    result = run_table(old.services.run_context, published)
    assert result.error is not None
    assert result.error.error == OlderSettingsError.__name__
    assert "older settings than the published copy of table shop:public.orders" in (
        result.error.message
    )
    assert old.store.get(ORDERS) == published, "its state is that of the newer process"
    assert cycle._runnable_tables(old.services.run_context, [published]) == [], "it is told once"
    assert runs.exit_code() is ExitCode.SOME_FAILED
    assert [one.context["table"] for one in runs.refused()] == [ORDERS]

    fresh = start(EDITED)
    assert fresh.digest() != old.digest()
    result = run_table(fresh.services.run_context, published)
    assert result.error is not None
    assert "reached the lake" in result.error.message


def test_an_edit_before_the_start_is_followed(
    start: Callable[[dict[str, Any]], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "check_serving", reached)
    record = start(RESYNC).copies(1)
    result = run_table(start(EDITED).services.run_context, record)
    assert result.error is not None
    assert "reached the lake" in result.error.message


APPENDS = {"tables": {"public.orders": {"mode": "append"}}}


def test_a_run_leaves_a_table_alone_for_which_its_own_settings_are_unusable(
    start: Callable[[dict[str, Any]], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings are edited together with an onboarding or a copy by another process."""
    monkeypatch.setattr(run_module, "check_serving", reached)
    start(APPENDS)  # registers the table
    old = start({})
    assert old.services.run_context.published_settings is not None
    published = start(APPENDS).copies(1)
    result = run_table(old.services.run_context, published)
    assert result.error is not None
    assert result.error.error == OlderSettingsError.__name__
    assert old.store.get(ORDERS) == published
    assert cycle._runnable_tables(old.services.run_context, [published]) == []

    result = run_table(start({}).services.run_context, published)
    assert result.error is not None
    assert "was onboarded with mode: append" in result.error.message
    assert result.state is State.FAILED


def test_a_run_leaves_tables_alone_whose_source_was_configured_after_its_start(
    start: Callable[[dict[str, Any]], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "check_serving", reached)
    new = start({})
    sources = {"billing": minimal()["sources"]["shop"]}
    old = start({"sources": sources})
    assert old.services.run_context.published_settings is not None
    published = new.copies(1)
    result = run_table(old.services.run_context, published)
    assert result.error is not None
    assert result.error.error == OlderSettingsError.__name__
    assert old.store.get(ORDERS) == published

    result = run_table(start({"sources": sources}).services.run_context, published)
    assert result.error is not None
    assert "source shop is not configured" in result.error.message
    assert result.state is State.FAILED


def test_no_resync_of_an_older_process_replaces_a_newer_copy(
    start: Callable[[dict[str, Any]], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an automatic resync nor a command from before the edit does so, at any step."""
    old = start(RESYNC)
    former = old.copies(1)
    context = old.services.run_context
    new = start(EDITED)
    renamed = SchemaChangeError("a column changed its type", remedy="Resync.")
    needs = new.copies(2, State.NEEDS_BOOTSTRAP, generation=2, error=ErrorRecord.of(renamed))

    monkeypatch.setattr("operate.automatic_resync.resync", reached)
    unattended = Unattended(old.services, old.store.tables)
    assert unattended.once() == []
    assert "older settings" in unattended.waiting[ORDERS]

    nothing = cast("Any", None)
    monkeypatch.setattr("bootstrap.handoff._Bootstrap._begin_attempt", reached)
    for record in (needs, former):
        with pytest.raises(OlderSettingsError):
            bootstrap_table(replace(context, sources={"shop": nothing}), nothing, record)
    with pytest.raises(OlderSettingsError):
        resync_table(context, nothing, needs)

    monkeypatch.setattr("bootstrap.resync.catch_up", lambda _, build: build)
    build = replace(former, beside=True, generation=3)
    with pytest.raises(OlderSettingsError):
        _replace_serving_generation(
            context, nothing, build, cast("Any", type("", (), {"lease_s": 0.0}))
        )
    assert old.store.get(ORDERS) == needs


def test_a_copy_that_another_process_made_meanwhile_is_judged_by_newer_facts(
    start: Callable[[dict[str, Any]], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table can wait for a worker for a long time, and its evidence becomes old meanwhile."""
    process = start(RESYNC)
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        run_module._TableRun,
        "_apply_seen",
        lambda run, _: seen.append((run._captures, run._topic)),
    )
    before = process.copies(1)
    context = process.services.run_context
    captures, topic = Captures(context), TopicFacts("T", {0: 0}, {0: 9})
    run_table(context, before, captures=captures, topic=topic)
    assert seen == [(captures, topic)]
    process.copies(2)
    run_table(context, before, captures=captures, topic=topic)
    newer_captures, newer_topic = seen[-1]
    assert newer_captures is not captures
    assert newer_topic is None, "it is read again"
