"""The script in `examples/`, run as a person runs it, on its own servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import yaml

from stack.local import LocalStack
from stack.ports import HOST
from stack.project import Addresses
from tests.conftest import guarded

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "shop" / "run.sh"


@pytest.mark.breadth
def test_the_example_ends_with_a_report_of_a_complete_hour_that_equals_the_source() -> None:
    with tempfile.TemporaryDirectory(prefix="tributary-example-") as name:
        work = Path(name)
        stack = LocalStack(work / "stack")
        with guarded(stack):
            try:
                ran = run(work)
                addresses = stack.addresses()
                left = processes(work)
            finally:
                stack.down(delete=True)
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
        assert left == []
        assert_the_job_starts_after_the_hour_is_complete(ran.stdout)
        assert_the_report_equals_the_source(work)
        assert_dbt_tests_what_the_checks_say(work, ran.stdout)
        assert_the_events_name_source_topic_and_lake(work, addresses, ran.stdout)


def processes(work: Path) -> list[list[str]]:
    """The command lines of processes, including servers, that the script has left running."""
    found = psutil.process_iter(["environ", "cmdline"])
    return [
        one.info["cmdline"]
        for one in found
        if (one.info["environ"] or {}).get("SHOP_WORK") == str(work)
    ]


def run(work: Path) -> subprocess.CompletedProcess[str]:
    """Run the script in a folder, with the programs of these tests' environment."""
    ours = {
        "SHOP_WORK": str(work),
        "TRIBUTARY_BIN": str(Path(sys.executable).parent),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [SCRIPT], env={**os.environ, **ours}, capture_output=True, text=True, timeout=1200
    )


def assert_the_job_starts_after_the_hour_is_complete(shown: str) -> None:
    steps = shown.split("\n== ")
    before, after, report = steps[3], steps[4], steps[6]
    assert ": not yet: " in before
    assert " is complete" in after  # without a time if a later hour was the first announced one
    assert "OK created sql incremental model reports.hourly_orders" in report


def assert_the_report_equals_the_source(work: Path) -> None:
    source = [line.split("\t") for line in (work / "source.txt").read_text().splitlines()]
    hour = source[0][0]
    assert [status for _, status, _, _ in source] == ["new", "paid", "shipped"]
    assert 300 < sum(int(orders) for _, _, orders, _ in source) < 360, "one each ten seconds"
    built = (work / "build.txt").read_text().splitlines()
    assert [line.split("\t") for line in built if line.startswith(hour)] == source


def assert_dbt_tests_what_the_checks_say(work: Path, shown: str) -> None:
    exported = yaml.safe_load((work / "dbt" / "models" / "sources.yml").read_text())
    (source,) = exported["sources"]
    assert source["name"] == "shop_public"
    assert {table["name"] for table in source["tables"]} == {"customers", "orders"}
    for one in (
        "PASS freshness of shop_public.orders",
        "PASS source_accepted_values_shop_public_orders_status",
        "PASS source_relationships_shop_public_orders_customer_id",
    ):
        assert one in shown


def assert_the_events_name_source_topic_and_lake(work: Path, at: Addresses, shown: str) -> None:
    text = (work / "events.json").read_text()
    ended = [one for one in map(json.loads, text.splitlines()) if one["eventType"] == "COMPLETE"]
    assert {one["job"]["name"] for one in ended} >= {
        "shop.public.orders.copy",
        "shop.public.orders.run",
    }
    lake = work / "stack" / "lake" / "shop" / "public" / "orders"
    source = f"postgres://{HOST}:{at.ports['primary']}", "shop.public.orders"
    topic = f"kafka://{at.kafka}", "shop_default.public.orders"
    for one in ended:
        if one["job"]["name"] == "shop.public.orders.run":
            assert {(had["namespace"], had["name"]) for had in one["inputs"]} == {source, topic}
            (output,) = one["outputs"]
            assert (output["namespace"], output["name"]) == ("file", str(lake))
    assert shown.split("\n== ")[8].splitlines()[2:] == [
        "reports.hourly_orders, by dbt",
        f"  <- shop_public.orders, in {lake}",
        f"    <- {' '.join(topic)}",
        f"    <- {' '.join(source)}",
    ]
