"""Runs that a timer such as cron (deploy/cron) starts while the previous run still works."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from cdc.config import load
from cdc.runtime.progress import NullProgress
from cdc.store.lease import held_leases
from operate.context import Services
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

pytestmark = pytest.mark.breadth


@pytest.mark.breadth
@pytest.mark.timeout(900)
def test_a_second_run_leaves_a_table_to_the_first_and_takes_the_others(
    database: Database, tmp_path: Path
) -> None:
    for name in ("held", "free"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
    project = Project.create(tmp_path, database)
    project.run("onboard", "public.*").expect(0)
    services = Services(load(project.file), NullProgress())
    held, free = str(project.table("held")), str(project.table("free"))
    for name in ("held", "free"):
        database.load(name, ((n, 0) for n in range(1, 2001)))

    first = project.start("run", "public.held", log=tmp_path / "first.log")
    try:
        # The topic may lag behind the source: a run that finds nothing ends, and the next begins.
        def holds() -> bool:
            nonlocal first
            if first.poll() is not None:
                first = project.start("run", "public.held", log=tmp_path / "first.log")
            return held in held_leases(services.store)

        wait_until(holds, "the lease of the first run", 120)
        first.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        second = project.run("run", "--tier", "default", "--output", "json").expect(0).json
        assert time.monotonic() - began < 60, "the lease would have expired"
        results = {one["table"]: one for one in second["tables"]}
        assert results[held]["skipped"]
        assert results[free]["commits"] == 1
    finally:
        first.send_signal(signal.SIGCONT)
    assert first.wait(120) == 0, (tmp_path / "first.log").read_text()
    project.run("verify", "public.held", "public.free").expect(0)
    services.close()
