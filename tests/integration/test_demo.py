"""The demo: its steps on the stack of the tests, and the command `demo` with its own servers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.runtime.progress import NullProgress
from operate.demo.shop import KEYLESS, TABLES
from operate.demo.shop_postgres import POSTGRES
from operate.demo.story import Demo
from operate.render import Output, Renderer
from stack.local import LocalStack
from tests.conftest import guarded
from tests.integration.rigs.postgres import Database

ROOT = Path(__file__).parents[2]
JSON = ("--output", "json")
TRIBUTARY = (sys.executable, "-c", "from operate.cli import main; main()")


def test_the_demo_on_postgres_ends_with_equal_tables(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo has two tables here, to be quick: one gets a column, and in one a key changes."""
    tables = ("customers", "products")
    witnesses = tuple(one for one in POSTGRES.witnesses if one.table in tables)
    shop = replace(POSTGRES, tables=tables, witnesses=witnesses, rate=10.0)
    demo = Demo(tmp_path, Renderer(Output.TEXT), NullProgress(), shop=shop)
    demo.config.write_text(yaml.safe_dump(database.document(tmp_path)))

    demo.show()

    assert_equal(demo.results.to_json(), "postgres", tables)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name in tables:
        assert [f"{database.name}:shop.{name}", "equal"] in [line[:2] for line in shown]
    for one in ("before", "after"):
        rows = [line for line in shown if line[:1] == [one]]
        assert len(rows) == len(witnesses), rows


@pytest.mark.breadth
@pytest.mark.parametrize(("source", "options"), [("mariadb", []), ("postgres", ["--s3"])])
def test_the_demo_as_its_users_run_it_ends_with_every_table_equal(
    source: str, options: list[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="tributary-demo-") as name:
        stack = LocalStack(Path(name, "stack"))
        with guarded(stack):
            try:
                done = subprocess.run(
                    [*TRIBUTARY, "demo", "--source", source, *options, "--dir", name, *JSON],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=800,
                )
                left = [server.name for server in stack.status() if server.pid]
                found = stack.addresses()
            finally:
                stack.down(delete=True)
    told = json.loads(done.stdout)
    assert done.returncode == 0, told
    assert (found.kinds, found.s3_endpoint is not None) == ((source,), "--s3" in options)
    assert left == []
    assert_equal(told, source, TABLES)


def assert_equal(results: dict[str, Any], source: str, tables: tuple[str, ...]) -> None:
    """Assert that these tables were copied and followed under writes.

    Also asserts that the table without a key was refused.
    """
    assert (results["ok"], results["source"]) == (True, source), results
    found = {one["table"].rpartition(".")[2]: one for one in results["verified"]}
    assert {name for name, one in found.items() if one["equal"]} == {*tables}
    (refused,) = [one for one in results["onboarded"] if one.get("error")]
    assert refused["table"].endswith(f".{KEYLESS}")
    assert re.search("has no (primary )?key", refused["error"]["message"])
    assert all(result["error"] is None for run in results["runs"] for result in run)
    assert sum(results["transactions"].values()) > 100
