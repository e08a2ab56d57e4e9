"""The demo as its users run it, on servers of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from operate.demo.shop import KEYLESS, TABLES
from stack.local import LocalStack
from tests.conftest import guarded

ROOT = Path(__file__).parents[2]
TRIBUTARY = (sys.executable, "-c", "from operate.cli import main; main()")


@pytest.mark.breadth
def test_the_demo_on_mariadb_ends_with_every_table_equal() -> None:
    with tempfile.TemporaryDirectory(prefix="tributary-demo-") as name:
        stack = LocalStack(Path(name, "stack"))
        with guarded(stack):
            try:
                done = subprocess.run(
                    [*TRIBUTARY, "demo", "--source", "mariadb", "--dir", name, "--output", "json"],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=800,
                )
                left = [server.name for server in stack.status() if server.pid]
                kinds = stack.addresses().kinds
            finally:
                stack.down(delete=True)
    told = json.loads(done.stdout)
    assert done.returncode == 0, told
    assert (told["ok"], told["source"], kinds) == (True, "mariadb", ("mariadb",))
    assert left == []
    found = {one["table"].rpartition(".")[2]: one for one in told["verified"]}
    assert {name for name, one in found.items() if one["equal"]} == {*TABLES}
    (refused,) = [one for one in told["onboarded"] if one.get("error")]
    assert refused["table"].endswith(f".{KEYLESS}")
    assert re.search("has no (primary )?key", refused["error"]["message"])
    assert all(result["error"] is None for run in told["runs"] for result in run)
    assert sum(told["transactions"].values()) > 100
