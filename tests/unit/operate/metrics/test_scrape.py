"""The metrics of a scrape with a real state store, and its duration while services are down."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import stamina
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from cdc.runtime.waiting import wait_while
from cdc.store.lease import Lease
from cdc.store.table_state import CommitWrites, State
from operate.cli import app
from operate.context import Services
from operate.metrics import metric_definitions as m
from operate.metrics.exposing import Scrapes, serving, write_file
from operate.metrics.facts import FactReader, Facts
from operate.metrics.families import families
from schemas.table import TableId
from tests.records import ORDERS
from tests.unit.operate.metrics.filled_store import (
    BOUND_S,
    PARTS,
    attempt,
    document,
    fill,
    fill_more,
    statements,
)

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def once() -> Iterator[None]:
    """Switch repeated requests off, which would go on in threads after a test has ended.

    The pauses between two tries are random, and hypothesis notices such random numbers in tests of
    other files.
    """
    stamina.set_active(False)
    yield
    stamina.set_active(True)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port of this machine that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


@pytest.fixture
def services(tmp_path: Path, silent: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    monkeypatch.setenv("ADMIN_PW", "canary-admin")
    found = Services(parse(yaml.safe_dump(document(tmp_path, silent))), NullProgress())
    yield found
    found.close()


def scrape(services: Services, bound_s: float = BOUND_S) -> Series:
    registry = CollectorRegistry()
    reader = FactReader(services, bound_s)
    registry.register(Scrapes(services.config, reader, cache_s=0.0, bound_s=10 * bound_s))
    return series(generate_latest(registry).decode())


def series(text: str) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Series, metric: m.Metric, table: TableId | None = None) -> dict[str, float]:
    """The values of a metric, by the value of its last label."""
    last = metric.labels[-1]
    return {
        dict(labels)[last]: value
        for (name, labels), value in found.items()
        if name == metric.full_name and (table is None or dict(labels)["table"] == str(table))
    }


def one(found: Series, metric: m.Metric, table: TableId = ORDERS) -> float | None:
    values = list(of(found, metric, table).values())
    assert len(values) < 2
    return values[0] if values else None


def test_a_scrape_shows_what_the_store_has(services: Services) -> None:
    now = fill(services)
    lease = Lease(services.store, ORDERS, "another process")
    lease.acquire()
    found = scrape(services)
    states = of(found, m.STATE, ORDERS)
    assert set(states) == {state.value for state in State}
    assert [name for name, value in states.items() if value] == ["incremental"]
    assert of(found, m.STATE, PARTS)["failed"] == 1
    assert one(found, m.WATERMARK) == now.timestamp()
    assert one(found, m.COMMIT) == now.timestamp() + 3
    assert one(found, m.TARGET) == 900
    assert one(found, m.QUARANTINED) == 1
    assert of(found, m.ERROR, PARTS) == {"SourceError": 1}
    assert one(found, m.FAILURES, PARTS) == 1
    assert one(found, m.RUN_SECONDS) == 2.5
    assert of(found, m.RUN_RECORDS, ORDERS) == {"u": 4, "d": 1}
    assert of(found, m.LAKE, ORDERS) == {
        "current": 100,
        "kept": 20,
        "other_generations": 3,
    }
    assert one(found, m.VERIFY_EQUAL_AT) == now.timestamp()
    assert of(found, m.DRIFT, ORDERS) == {"missing": 2}
    held = one(found, m.LEASE)
    assert held is not None
    assert held > now.timestamp()
    taken = one(found, m.LEASE_TAKEN)
    assert taken is not None
    assert 0 <= taken - now.timestamp() < 60
    assert one(found, m.LEASE, PARTS) is None
    assert one(found, m.LEASE_TAKEN, PARTS) is None


def test_a_scrape_shows_what_the_newest_commit_wrote(services: Services) -> None:
    fill(services)
    found = scrape(services)
    assert one(found, m.COMMIT_SECONDS) == 1.5
    assert one(found, m.COMMIT_BYTES) == 9_000
    assert of(found, m.COMMIT_ROWS, ORDERS) == {"insert": 1, "update": 7, "delete": 1}
    assert one(found, m.COMMIT_BYTES_PER_ROW) == 1_000
    record = services.store.get(ORDERS)
    assert record is not None
    assert record.last_commit is not None
    nothing = CommitWrites(0.1, 0, inserts=0, updates=0, deletes=0)
    record = services.store.put(
        replace(record, last_commit=replace(record.last_commit, writes=nothing))
    )
    found = scrape(services)
    assert one(found, m.COMMIT_BYTES) == 0
    assert one(found, m.COMMIT_BYTES_PER_ROW) is None, "nothing was changed"
    assert record.last_commit is not None
    services.store.put(replace(record, last_commit=replace(record.last_commit, writes=None)))
    found = scrape(services)
    assert one(found, m.COMMIT_BYTES) is None, "not known"
    assert one(found, m.COMMIT) is not None


def test_only_the_process_that_runs_tables_shows_its_rounds(services: Services) -> None:
    names = (m.ROUND_AT.full_name, m.ROUND_SECONDS.full_name)
    services.rounds.note(0.25)
    shown = {}
    for rounds in (None, services.rounds):
        facts = FactReader(services, 0.1, rounds).read()
        shown = {one.name: one.samples for one in families(services.config, facts)}
        assert all((name in shown) == (rounds is not None) for name in names)
    assert shown[names[1]][0].value == 0.25
    assert 0 <= time.time() - shown[names[0]][0].value < 60


def test_a_copy_that_is_made_again_forgets_what_verify_found(services: Services) -> None:
    fill(services)
    record = services.store.get(ORDERS)
    assert record is not None
    services.store.put(replace(record, attempt=attempt(9)))
    found = scrape(services)
    assert of(found, m.DRIFT, ORDERS) == {}
    assert one(found, m.VERIFY_AT) is None


def test_services_that_never_answer_cost_the_bound_and_their_own_series_only(
    services: Services,
) -> None:
    fill(services)
    began = time.monotonic()
    found = scrape(services)
    assert time.monotonic() - began < 10 * BOUND_S, "their clients wait for 20 s and more"
    up = {(service, source): value for service, source, value in ups(found)}
    assert up == {
        ("state_store", ""): 1,
        ("kafka", ""): 0,
        ("connect", ""): 0,
        ("source", "shop"): 0,
    }
    assert found["tributary_scrape_success", ()] == 1
    assert of(found, m.STATE, ORDERS)["incremental"] == 1
    names = {name for name, _ in found}
    for gone in (m.BEHIND, m.CONNECTOR_UP, m.BEAT, m.LOG_BYTES):
        assert gone.full_name not in names
    assert one(found, m.LATE) == 0


def ups(found: Series) -> Iterator[tuple[str, str, float]]:
    for (name, labels), value in found.items():
        if name == m.UP.full_name:
            yield dict(labels)["service"], dict(labels)["source"], value


def test_without_the_state_store_a_scrape_says_only_that(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.touch()
    state = {"url": f"sqlite:///{file / 'state.db'}"}
    config = parse(yaml.safe_dump(document(tmp_path, state=state)))
    with ExitStack() as at_end:
        services = Services(config, NullProgress())
        at_end.callback(services.close)
        found = scrape(services)
    assert found["tributary_scrape_success", ()] == 0
    assert list(ups(found)) == [("state_store", "", 0)]
    assert {name for name, _ in found} == {
        "tributary_scrape_success",
        "tributary_up",
        "tributary_build_info",
    }


def test_a_scrape_whose_facts_come_too_late_does_not_wait(services: Services) -> None:
    fill(services)
    reader = FactReader(services, 60.0)
    scrapes = Scrapes(services.config, reader, cache_s=0.0, bound_s=0.2)
    began = time.monotonic()
    first, second = scrapes.facts(), scrapes.facts()
    assert (first, second) == (None, None)
    assert time.monotonic() - began < 5.0
    (family,) = [one for one in scrapes.collect() if one.name == "tributary_scrape_success"]
    assert [sample.value for sample in family.samples] == [0]


class SlowReader:
    """A reader of facts that can be made to wait before it reads."""

    def __init__(self, services: Services) -> None:
        self._reader = FactReader(services, 0.1)
        self.go_on = threading.Event()
        self.go_on.set()

    def read(self) -> Facts:
        self.go_on.wait(30.0)
        return self._reader.read()


def test_the_last_facts_are_shown_while_newer_ones_are_read(services: Services) -> None:
    """If a scrape had no tables, the waiting time of every alarm would start again."""
    fill(services)
    reader = SlowReader(services)
    bounds = {"cache_s": 0.0, "bound_s": 20.0, "kept_s": 2.0}
    scrapes = Scrapes(services.config, cast("FactReader", reader), **bounds)
    first = scrapes.facts()
    assert first is not None
    reader.go_on.clear()
    scrapes._bound_s = 0.1
    try:
        assert scrapes.facts() is first
        shown = {one.name: one.samples for one in scrapes.collect()}
        assert shown["tributary_scrape_success"][0].value == 1
        assert shown["tributary_facts_timestamp_seconds"][0].value == first.read_at.timestamp()
        wait_while(lambda: scrapes.facts() is not None, timeout_s=10.0, poll_s=0.1)
        assert scrapes.facts() is None, "they are too old"
    finally:
        reader.go_on.set()
    scrapes._bound_s = 20.0
    assert scrapes.facts() is not first


def test_what_topics_say_late_costs_its_own_series_only(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late answer to an earlier scrape is not shown: this scrape's heartbeat could be newer."""
    fill(services)
    go_on, asked = threading.Event(), list[list[str]]()

    def ends_now(topics: list[str], *, committed: bool) -> dict[str, dict[int, int]]:
        asked.append([*topics, str(committed)])
        go_on.wait(30.0)
        return {topic: {0: 9} for topic in topics}

    monkeypatch.setattr(services.kafka, "ping", lambda: ("c", 1))
    monkeypatch.setattr(services.kafka, "ends_now", ends_now)
    reader = FactReader(services, BOUND_S)
    try:
        for _ in range(2):
            began = time.monotonic()
            facts = reader.read()
            assert time.monotonic() - began < 5 * BOUND_S
            assert facts.status is not None
            assert facts.forecast is None
            assert {one.record.table: one.events_behind for one in facts.status.tables} == {
                ORDERS: None,
                PARTS: None,
            }
        assert len(asked) == 1, "the second scrape does not ask before the first one has an answer"
    finally:
        go_on.set()


def test_facts_are_shown_again_until_they_are_too_old(services: Services) -> None:
    fill(services)
    reader = FactReader(services, 0.1)
    scrapes = Scrapes(services.config, reader, cache_s=60.0, bound_s=10.0)
    first = scrapes.facts()
    assert first is not None
    assert scrapes.facts() is first
    at_once = Scrapes(services.config, reader, cache_s=0.0, bound_s=10.0)
    assert at_once.facts() is not at_once.facts()


def test_the_statements_of_a_scrape_do_not_grow_with_the_tables(services: Services) -> None:
    """Half of the tables are being copied; before, the store was asked for each of these tables."""
    fill(services)
    few = statements(services)
    fill_more(services, 60)
    many = statements(services)
    assert len(many) == len(few) <= 28


def test_a_table_has_few_series(services: Services) -> None:
    fill(services, 10)
    found = scrape(services)
    mine = [labels for _, labels in found if dict(labels).get("table") == "shop:public.t0"]
    assert 10 < len(mine) <= 52, "docs/observe.md names the limit"


def test_no_secret_and_no_value_of_a_row_is_shown(services: Services) -> None:
    fill(services)
    registry = CollectorRegistry()
    reader = FactReader(services, BOUND_S)
    registry.register(Scrapes(services.config, reader, cache_s=0.0, bound_s=10.0))
    shown = generate_latest(registry).decode()
    assert "tributary_table_error" in shown
    assert "tributary_table_quarantined_messages" in shown
    assert "canary" not in shown


def test_each_series_is_a_defined_metric(services: Services) -> None:
    fill(services)
    known = {one.full_name: set(one.labels) for one in m.METRICS}
    for family in families(services.config, FactReader(services, BOUND_S).read()):
        for sample in family.samples:
            assert set(sample.labels) == known[sample.name]


def test_metrics_are_served_over_http_on_loopback(services: Services) -> None:
    fill(services)
    with serving(services.config, port=0) as port:
        address = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(address, timeout=20) as answered:
            assert answered.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            found = series(answered.read().decode())
        packed = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(packed, timeout=20) as answered:
            assert answered.headers["Content-Encoding"] == "gzip"
            again = series(gzip.decompress(answered.read()).decode())
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(address, data=b"", timeout=20)
    assert of(found, m.STATE, ORDERS)["incremental"] == 1
    assert again.keys() == found.keys()


def test_a_port_in_use_is_an_error_with_a_remedy(services: Services, silent: int) -> None:
    with (
        pytest.raises(ConfigError, match=f"cannot be served at 127.0.0.1:{silent}") as refused,
        serving(services.config, port=silent),
    ):
        pass
    assert "Choose another port" in refused.value.remedy


def test_a_file_is_replaced_in_one_step(services: Services, tmp_path: Path) -> None:
    fill(services)
    folder = tmp_path / "textfiles"
    folder.mkdir()
    file = folder / "tributary.prom"
    file.write_text("the former file")
    former = file.open()
    assert write_file(services, file)
    assert former.read() == "the former file", "a reader that has opened it still has all of it"
    former.close()
    assert of(series(file.read_text()), m.STATE, ORDERS)["incremental"] == 1
    assert [one.name for one in folder.iterdir()] == ["tributary.prom"]
    with pytest.raises(ConfigError, match="cannot be written") as refused:
        write_file(services, folder / "missing" / "tributary.prom")
    assert "Name a file in a folder that exists" in refused.value.remedy


def test_the_command_writes_the_file_and_fails_without_a_store(tmp_path: Path) -> None:
    file, config = tmp_path / "tributary.prom", tmp_path / "tributary.yaml"
    settings = document(tmp_path)
    del settings["sources"]["shop"]["credentials"]["admin"]["password"]
    config.write_text(yaml.safe_dump(settings))
    arguments = ["metrics", "--textfile", str(file), "--config", str(config)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert series(file.read_text())["tributary_scrape_success", ()] == 1
    settings["state"] = {"url": f"sqlite:///{config / 'state.db'}"}
    config.write_text(yaml.safe_dump(settings))
    assert CliRunner().invoke(app, arguments).exit_code == 1
    assert series(file.read_text())["tributary_scrape_success", ()] == 0
