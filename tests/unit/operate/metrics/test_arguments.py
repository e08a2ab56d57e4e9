"""Which combinations of arguments ``metrics`` and ``run`` refuse."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from operate.cli import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["metrics"], "name a FILE"),
        (["metrics", "--textfile", "x.prom", "serve"], "name no command"),
        (["run", "--metrics-port", "0"], "needs --continuous"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 2
    assert said in ran.output
