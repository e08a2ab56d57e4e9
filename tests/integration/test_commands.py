"""The commands as a person types them, from an empty folder to an empty plan.

Each command is a separate process, and the assertions are on its printed output. Read-only
commands run at the same time, since most of their time goes into starting a process.
"""

from __future__ import annotations

import getpass
import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml

from cdc.config import load
from cdc.runtime.progress import NullProgress
from operate.context import Services
from tests.integration.rigs import pgbench
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.faults import LostSchema, produce
from tests.integration.rigs.lineage_receiver import Received, receiving
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project, Ran
from tests.integration.rigs.shop import settle

ORDERS, PARTS, NEWCOMER = "public.orders", "public.parts", "public.newcomer"
SCALE = 1
SETTINGS = {"on_bad_message": "quarantine", "on_schema_change": "freeze"}
"""The settings of `PARTS`."""
EQUAL = {ORDERS: 100, PARTS: 20, **pgbench.rows(SCALE)}
"""The number of rows at the end, for each table with a key."""
_END_S = 90.0
"""Seconds from SIGTERM to the exit: 20 for running work, 20 for Spark, and a reserve."""


@pytest.mark.timeout(1200)
def test_a_project_from_its_first_command_to_its_last(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int NOT NULL, t text)",
        "CREATE TABLE parts (id int PRIMARY KEY, v int NOT NULL)",
    )
    database.load("orders", ((n, 0, f"row {n}") for n in range(1, 101)))
    database.load("parts", ((n, 0) for n in range(1, 21)))
    pgbench.fill(database, SCALE)
    project = Project(tmp_path, database)

    begins(project)
    finds_its_tables(project)
    onboards(project, database)
    foresees_its_runs(project)
    pauses_while_another_goes_on(project)
    replays_what_was_left_out(project)
    shows_its_page(project)
    follows_a_column_until_it_is_stopped(project)
    verifies_and_copies_again(project)
    with receiving() as received:
        monkeypatch.setenv("OPENLINEAGE_URL", received.url)
        sends_its_lineage(project, received)
    ends(project)


def begins(project: Project) -> None:
    """Test ``init`` and ``config schema``."""
    assert_line(project.run("init").expect(0), f"Wrote {project.file}. Fill it in, then run:")
    starting = yaml.safe_load(project.file.read_text())
    schema = project.run("config", "schema").expect(0).json
    jsonschema.validate(starting, schema)

    project.configure({PARTS: SETTINGS})
    filled_in = yaml.safe_load(project.file.read_text())
    jsonschema.validate(filled_in, schema)
    assert starting.keys() < filled_in.keys(), "every section of the starting file was filled in"


def finds_its_tables(project: Project) -> None:
    """Test ``check``, ``discover`` and ``onboard --dry-run``, which change nothing."""
    name = project.database.name
    checked, found, planned, shown = project.run_together(
        ["check"], ["discover"], ["onboard", ORDERS, "--dry-run"], ["status"]
    )
    assert_line(checked.expect(0), "ok       wal_level: logical")
    assert_line(checked, f"{project.folder / 'lake'} is writable")
    assert_line(checked, " checks, 0 warnings, 0 errors")
    found.expect(0)
    for table in EQUAL:
        assert_line(found, f"{name}:{table} ", "id ", " default ", " ready")
    no_key = "refused: has no key, so a change cannot be applied"
    assert_line(found, f"{name}:{pgbench.KEYLESS} ", no_key)
    assert_line(found, "1 of 6 tables cannot be onboarded as they are; `tributary onboard TABLE")

    assert_line(planned.expect(0), f"topic  {name}_default.{ORDERS}")
    assert_line(planned, f'PUBLICATION "tributary_{name}_default" ADD TABLE ONLY "public"."orders"')
    assert_line(planned, f"PUT /connectors/tributary_{name}_default/config")
    assert_line(planned, f"copy {name}:{ORDERS}, hand over to the stream, publish")
    assert_line(shown.expect(0), "No table is on the plan. Next: tributary")
    assert project.database.rows("SELECT pubname FROM pg_publication") == []


def onboards(project: Project, database: Database) -> None:
    """Test ``onboard`` during writes, ``path``, and ``retry`` of a table that did not fail."""
    name = project.database.name
    with pgbench.load(database, project.folder / "pgbench.log", per_second=30):
        onboarded = project.run("onboard", "public.*").expect(0)
        before = pgbench.written(database)
        wait_until(lambda: pgbench.written(database) > before, "pgbench writes on")
    for table, rows in EQUAL.items():
        done = f"{name}:{table}: copied {rows:,} rows in"
        assert_line(onboarded, done, "handed over to the stream")
    assert f"Left out: table {name}:{pgbench.KEYLESS} has no key" in onboarded.stderr
    assert "What to do: Choose: 1. give it a primary key" in onboarded.stderr
    (attempt,) = (project.folder / "lake" / name / "public" / "orders").glob("attempt=*")
    path, listed, refused = project.run_together(
        ["path", ORDERS], ["path", ORDERS, "--files", "--output", "json"], ["retry", ORDERS]
    )
    assert_line(path.expect(0), str(attempt))
    files = listed.expect(0).json["files"]
    assert {Path(one["path"]).parent for one in files} == {attempt}
    assert sum(one["rows"] for one in files) == EQUAL[ORDERS]

    assert f"Error: table {name}:{ORDERS} is incremental, not failed" in refused.expect(3).stderr
    assert f"What to do: See `tributary status {name}:{ORDERS}`" in refused.stderr


def foresees_its_runs(project: Project) -> None:
    """Test ``plan`` before the first run: all targets are kept, and then one is missed.

    A target of one second makes a table late; ``status`` agrees. The tables of pgbench have changes
    that wait, too, since it wrote on after their copies.
    """
    name = project.database.name
    project.execute("UPDATE parts SET v = 1 WHERE id < 4")
    with opened(project) as services:
        settle(services, project.table("parts"))
    kept, idle = project.run_together(
        ["plan", PARTS, "--tier", "default"], ["plan", ORDERS, "--output", "json"]
    )
    assert_line(kept.expect(0), "table", "tier", "starts in", "takes", "behind", "can wait")
    assert_line(kept, f"{name}:{PARTS} ", " default ", " s ", " min ")
    assert_line(kept, "tier default: 0% of ")
    assert_line(kept, "All targets can be kept: they need 0% of ")
    found = idle.expect(0).json
    assert (found["kept"], found["next"], found["targets"]) == (True, [], [])
    assert [one["table"] for one in found["tables"]] == [f"{name}:{ORDERS}"]

    project.configure({PARTS: {**SETTINGS, "freshness_target_s": 1}})
    missed, document, late, unknown = project.run_together(
        ["plan", "--next", "1"],
        ["plan", "--next", "1", "--output", "json"],
        ["status", "--fail-on", "late"],
        ["plan", "--tier", "hot"],
    )
    project.configure({PARTS: SETTINGS})
    assert_line(missed.expect(3), f"{name}:{PARTS} ", " late")
    assert_line(missed, "and 3 more tables")
    assert_line(missed, "Not all targets can be kept: they need ")
    assert_line(missed, "no commit for longer than the target, at most for ")
    assert_line(missed, "What to do: start runs more often than the targets ask, or use")
    found = document.expect(3).json
    assert [one["table"] for one in found["next"]] == [f"{name}:{PARTS}"]
    assert not found["kept"]
    (target,) = found["targets"]
    assert (target["cause"], target["missed"]) == ("runs", True)
    assert target["tables"] == [f"{name}:{PARTS}"]
    (behind,) = (one["behind"] for one in found["tables"] if one["table"] == f"{name}:{PARTS}")
    assert behind >= 3, "the end of Kafka's transaction counts, too"
    assert_line(late.expect(1), f"Not as it should be: late: {name}:{PARTS}")
    assert "'tier hot' matches no table on the plan" in unknown.expect(1).stderr


def pauses_while_another_goes_on(project: Project) -> None:
    """Test ``pause``, ``run``, ``report``, ``status`` and ``resume``; other tables go on."""
    name = project.database.name
    paused = project.run("pause", ORDERS, "--reason", "a migration").expect(0)
    assert_line(paused, f"{name}:{ORDERS}: paused")
    refused = project.run("verify", ORDERS).expect(3)
    assert f"{name}:{ORDERS} is paused" in refused.stderr
    project.execute("UPDATE orders SET v = 1")
    ran = project.run("run", "--fail-on", "paused,quarantined").expect(3)
    assert_line(ran, f"{name}:{PARTS}: 3 changes in 1 commits,")
    assert_line(ran, f"{name}:{ORDERS}: paused: a migration")
    assert_line(ran, f"Not as it should be: paused: {name}:{ORDERS}")
    resume = f"  What to do: Run `tributary resume {name}:{ORDERS}` before"
    assert_line(ran, resume)

    file = project.folder / "report.html"
    reported, shown, document, checked, failed = project.run_together(
        ["report", "--html", str(file)],
        ["status"],
        ["status", "--output", "json"],
        ["status", "--check"],
        ["status", "--fail-on", "failed,needs_bootstrap,half_copied"],
    )
    assert_line(reported.expect(0), f"Wrote {file}: {len(EQUAL)} tables, ")
    for part in (f"{name}:{ORDERS}", "a migration", "paused", f"<code>tributary resume {name}"):
        assert part in file.read_text("utf-8")
    failed.expect(0)
    assert_line(checked.expect(1), f"Not as it should be: paused: {name}:{ORDERS}")
    assert document.json["conditions"]["paused"] == [f"{name}:{ORDERS}"]
    assert_line(shown.expect(0), f"{name}:{ORDERS} ", " paused ")
    assert_line(shown, f"{name}:{PARTS} ", " incremental ")
    assert_line(shown, f"{name}:{ORDERS}: a migration")
    assert_line(shown, resume)
    assert_line(shown, f"capture {name}/default: connector running, last heartbeat", "of log kept")
    states = {one["table"]: one["state"] for one in document.expect(0).json["tables"]}
    assert states.pop(f"{name}:{ORDERS}") == "paused"
    assert states == {f"{name}:{one}": "incremental" for one in EQUAL if one != ORDERS}
    assert_line(project.run("resume", ORDERS).expect(0), f"{name}:{ORDERS}: resumed")


def replays_what_was_left_out(project: Project) -> None:
    """Test ``run``, and ``quarantine list``, ``quarantine show`` and ``quarantine replay``."""
    name = project.database.name
    with opened(project) as services:
        lost = LostSchema(services.config.kafka.registry.url)
        whole, offset = leave_unreadable(services, project, lost)
        ran = project.run("run").expect(0)
        assert_line(ran, f"{name}:{ORDERS}: 100 changes in")
        reason = f"does not know schema id {lost.id}"
        listed, shown, states = project.run_together(
            ["quarantine", "list"], ["quarantine", "show", PARTS, str(offset)], ["status"]
        )
        assert_line(listed.expect(0), f"{name}:{PARTS} ", f" {offset} ", f" {lost.id} ", reason)
        assert_line(shown.expect(0), "reason ", reason)
        assert_line(shown, f"value: {len(whole)} bytes")
        assert_line(shown, f"  000000  00 {lost.id.to_bytes(4, 'big').hex(' ')}")
        (left,) = (one for one in states.expect(0).lines if "in quarantine" in one)
        assert left.startswith(f"{name}:{PARTS}: 1 records are in quarantine")

        schema = services.registry.schema(int.from_bytes(whole[1:5], "big"))
        lost.restore(schema, services.connect, f"tributary_{name}_default")
    replayed = project.run("quarantine", "replay", PARTS).expect(0)
    assert_line(replayed, f"{name}:{PARTS}: replayed 1 records, and ")
    assert_line(project.run("quarantine", "list").expect(0), "No record is in quarantine.")


def leave_unreadable(services: Services, project: Project, lost: LostSchema) -> tuple[bytes, int]:
    """Write the newest change of ``parts`` again, with the lost schema.

    Returns the original message and the offset of the new one.
    """
    record = services.store.get(project.table("parts"))
    assert record is not None
    settle(services, record.table)
    end = services.kafka.stable_offsets(record.topic)[0]
    events = services.kafka.read(record.topic, 0, 0, end)
    whole = [event.value for event in events if event.value is not None][-1]
    produce(services.config, record.topic, lost.write(whole), key=None)
    return whole, services.kafka.stable_offsets(record.topic)[0] - 1


def shows_its_page(project: Project) -> None:
    """Test that ``ui`` shows a table, its slot, runs and steps, and allows no changes."""
    name, log = project.database.name, project.folder / "ui.log"
    process = project.start("ui", "--port", "0", "--output", "json", log=log)
    try:
        wait_until(lambda: "http://" in log.read_text(), "the page", 60, log.read_text)
        address = json.loads(log.read_text().splitlines()[0])["ui"]
        with httpx.Client(base_url=address, timeout=30) as viewer:
            assert viewer.post("/").status_code == 405
            sources, shown = viewer.get("/sources").text, viewer.get("/tables").text
            table = viewer.get("/table", params={"name": f"{name}:{ORDERS}"}).text
        assert f"tributary_{name}_default" in sources
        assert "running" in sources
        assert all(f"{name}:{one}" in shown for one in EQUAL)
        for step in ("check", "read", "write"):
            assert re.search(rf'<rect class="step-{step}"', table), "a real run has its steps"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def follows_a_column_until_it_is_stopped(project: Project) -> None:
    """Test ``schema check``, ``diff`` and ``history``, and ``run --continuous`` until SIGTERM.

    The other table's columns are frozen: its new column is left out, with a message. A table that
    is onboarded during the continuous run is followed, too.
    """
    name = project.database.name
    narrower = "ALTER TABLE orders ALTER COLUMN v TYPE smallint"
    project.execute(
        "ALTER TABLE orders ADD COLUMN note text",
        "UPDATE orders SET note = 'new' WHERE id = 7",
        "ALTER TABLE parts ADD COLUMN n int",
        "UPDATE parts SET n = 5 WHERE id = 9",
    )
    asked, compared = project.run_together(
        ["schema", "check", ORDERS, "--ddl", narrower], ["schema", "diff", ORDERS]
    )
    assert_line(asked.expect(4), "bootstrap  column 'v' ")
    assert_line(asked, "Verdict: the table needs a bootstrap.")
    assert_line(compared.expect(0), "column  source   registry  lake")
    assert_line(compared, "note    text     string    -")
    assert_line(compared, "Verdict: the lake follows in place.")

    log = project.folder / "continuous.log"
    process = project.start("run", "--continuous", "--tier", "default", "--interval", "1", log=log)
    try:
        for table in (ORDERS, PARTS):
            line = f"{name}:{table}: 1 changes in"
            wait_until(lambda line=line: line in log.read_text(), line, 300, log.read_text)
        project.execute("CREATE TABLE newcomer AS SELECT 1 AS id, 0 AS v")
        project.execute("ALTER TABLE newcomer ADD PRIMARY KEY (id)")
        project.run("onboard", NEWCOMER).expect(0)
        project.execute("UPDATE newcomer SET v = 1")
        line = f"{name}:{NEWCOMER}: 1 changes in"
        wait_until(lambda: line in log.read_text(), line, 120, log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(_END_S) == 0, log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
    assert "leaves out: n" in log.read_text()
    shown, past = project.run_together(
        ["status", PARTS, "--tier", "default"], ["schema", "history", ORDERS]
    )
    assert_line(
        shown.expect(0), f"{name}:{PARTS}: the lake lacks the columns n (on_schema_change: freeze)"
    )
    assert_line(shown, f"Last runs of {name}:{PARTS}:")
    assert_line(past.expect(0), " evolve ", " followed ", "column 'note' (text) was added")


def verifies_and_copies_again(project: Project) -> None:
    """Test ``verify``, ``resync``, ``generations list`` and ``generations remove``."""
    name = project.database.name
    verified = project.run("verify", "public.*").expect(0)
    for table, rows in EQUAL.items():
        assert_line(verified, f"{name}:{table}: equal, {rows:,} rows compared,")

    copied = project.run("resync", ORDERS).expect(0)
    assert_line(copied, f"{name}:{ORDERS}: copied 100 rows in", "and published generation 2")
    removed = project.run("generations", "remove", ORDERS, "1").expect(0)
    assert_line(removed, "removed former generation 1, attempt ")
    listed = project.run("generations", "list", ORDERS).expect(0)
    (serving,) = (one.split() for one in listed.lines if not one.startswith("generation "))
    assert (serving[0], serving[2]) == ("2", "serving")
    (attempt,) = (project.folder / "lake" / name / "public" / "orders").glob("attempt=*")
    assert attempt.name == f"attempt={serving[1]}", "only the serving one is left"


def sends_its_lineage(project: Project, received: Received) -> None:
    """Test ``lineage`` with an HTTP receiver that refuses at first; lost events are sent again."""
    name = project.database.name
    received.refuses = True
    refused = project.run("lineage", "--namespace", "sales").expect(1)
    assert "Error: the receiver of lineage events does not take them" in refused.stderr
    received.refuses = False
    sent = project.run("lineage", "--namespace", "sales").expect(0)
    assert_line(sent, f"Sent {len(received.events):,} events.")

    copies = received.of(f"{name}.{ORDERS}.copy")
    assert [one["eventType"] for one in copies] == ["START", "COMPLETE"] * 2
    assert [change_of(one) for one in copies] == [None, "CREATE", None, "OVERWRITE"]
    altered = received.of(f"{name}.{ORDERS}.schema")[1]
    assert change_of(altered) == "ALTER"
    for event in (altered, copies[3], received.of(f"{name}.{ORDERS}.run")[-1]):
        columns = [one["name"] for one in event["outputs"][0]["facets"]["schema"]["fields"]]
        assert columns[-4:] == ["id", "v", "t", "note"]
    run = received.of(f"{name}.{ORDERS}.run")[-1]
    assert run["eventType"] == "COMPLETE"
    assert run["outputs"][0]["facets"]["version"]["datasetVersion"].isdigit()
    (table, topic), (lake,) = run["inputs"], run["outputs"]
    database, where = project.database.name, project.folder / "lake" / name / "public" / "orders"
    assert table["name"] == f"{database}.{ORDERS}"
    assert [one["name"] for one in table["facets"]["schema"]["fields"]] == ["id", "v", "t", "note"]
    assert topic["name"] == f"{name}_default.{ORDERS}"
    assert (lake["namespace"], lake["name"]) == ("file", str(where))
    assert "row 7" not in received.text, "no value of a row"
    assert_line(project.run("lineage", "--namespace", "sales").expect(0), "Sent 0 events.")


def change_of(event: dict[str, Any]) -> Any:
    facets = event["outputs"][0].get("facets", {})
    return facets.get("lifecycleStateChange", {}).get("lifecycleStateChange")


def ends(project: Project) -> None:
    """Test ``offboard --delete-data`` and ``history``; no server keeps anything of the tables."""
    name = project.database.name
    left = project.run("offboard", "public.*", "--delete-data").expect(0)
    for table in EQUAL:
        assert_line(left, f"{name}:{table}: offboarded: ")
    shown, refused, past, document = project.run_together(
        ["status"],
        ["path", ORDERS],
        ["history", ORDERS],
        ["history", "--since", "1h", "--output", "json"],
    )
    who = f" {getpass.getuser()}@{socket.gethostname()}: "
    paused = "paused, was incremental: a migration"
    assert_line(past.expect(0), f" {name}:{ORDERS} ", paused, f"{who}pause ")
    assert_line(past, "100 changes, ", f"{who}run ")
    assert_line(past, "schema version 2: column 'note' (text) was added", f"{who}run ")
    assert_line(past, "next generation, 2: registered", f"{who}resync ")
    assert_line(past, "retired, was incremental", f"{who}offboard ")
    events = document.expect(0).json["history"]
    assert {one["kind"] for one in events} == {"run", "schema", "state"}
    assert [one["at"] for one in events] == sorted(one["at"] for one in events)
    assert len({one["run_id"] for one in events if one["by"]["command"] == "onboard"}) == 2
    assert_line(shown.expect(0), "No table is on the plan.")
    assert f"Error: table {name}:{ORDERS} " in refused.expect(1).stderr
    assert list((project.folder / "lake").rglob("*.parquet")) == []
    slots = f"SELECT slot_name FROM pg_replication_slots WHERE database = '{name}'"
    assert project.database.rows(slots) == []
    with opened(project) as services:
        assert services.kafka.topics([f"{name}_default.{one}" for one in EQUAL]) == {}
        assert services.connect.connector(f"tributary_{name}_default") is None


def assert_line(ran: Ran, *parts: str) -> None:
    """Assert that one line on stdout has all of these parts."""
    assert any(all(part in line for part in parts) for line in ran.lines), (
        f"tributary {' '.join(ran.arguments)} prints no line with {parts}:\n"
        f"{ran.stdout}\n--- stderr\n{ran.stderr[-3000:]}"
    )


@contextmanager
def opened(project: Project) -> Iterator[Services]:
    """The services that commands work with, for a block."""
    services = Services(load(project.file), NullProgress())
    try:
        yield services
    finally:
        services.close()
