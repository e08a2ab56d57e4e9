"""The repository's pages, and the command line that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import typer
from typer.core import TyperGroup

from operate.cli import app

ROOT = Path(__file__).parents[3]


def text(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text("utf-8")


ROOT_COMMAND = cast("TyperGroup", typer.main.get_command(app))
