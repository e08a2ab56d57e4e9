"""``report``: writes the fleet at a glance to one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.errors import ConfigError, StateError
from operate.history import history
from operate.metrics.facts import FactReader
from operate.ui.calendar import calendar
from operate.ui.copies import copies
from operate.ui.fleet import overview
from operate.ui.looks import take_look
from operate.ui.rendering import Pages, asset
from operate.ui.tables import Wanted, listing

if TYPE_CHECKING:
    from operate.context import Services

_BOUND_S = 60.0
"""How long the servers may take to answer, in seconds."""
_EVENTS = 200
"""Maximum number of events of each kind in a report."""
_CALENDARS = 50
"""Maximum number of calendars in a report."""
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Written:
    """What ``report`` has written.

    Args:
        path: The file.
        tables: Number of the tables in the report.
        troubles: Number of things that are not as they should be.
        bytes: The file's size.
    """

    path: str
    tables: int
    troubles: int
    bytes: int


def write_report(services: Services, path: Path) -> Written:
    """Write the report, which shows the fleet as the page does, to an HTML file in one step.

    Args:
        services: The services of the command. No Spark session is started.
        path: The file.

    Raises:
        StateError: The state store does not answer.
        ConfigError: Jinja is not installed, or the file cannot be written.
    """
    pages = Pages()
    look = take_look(services, FactReader(services, _BOUND_S))
    if (status := look.facts.status) is None:
        raise StateError(
            "the report was not written, since the state store does not answer",
            remedy="Run `tributary check`, which names the cause.",
        )
    fleet, now = overview(look.facts), look.facts.read_at
    asked = [one for one in status.tables if one.periods is not None][:_CALENDARS]
    found = [calendar(services, one, now) for one in asked]
    compared = [one for one in status.tables if one.verified is not None or one.checks]
    style = asset("ui.css").decode()
    text = pages.render(
        "report.html",
        style=style,
        style_hash=_style_hash(style),
        at=now,
        fleet=fleet,
        listing=listing(status.tables, Wanted(), all_rows=True),
        compared=listing(compared, Wanted(), all_rows=True),
        copies=copies(look),
        calendars=[one for one in found if one is not None],
        events=history(services, now - _DAY, most=_EVENTS)[::-1][:_EVENTS],
    )
    _replace_report(path, text)
    return Written(str(path), len(status.tables), len(fleet.troubles), len(text.encode()))


def _style_hash(text: str) -> str:
    """Return the hash by which the report's content security policy allows an inline style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _replace_report(path: Path, text: str) -> None:
    """Write the HTML file of the report in one step.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written to {path}: {error.strerror or error}",
            remedy="Name a file with --html in a folder that exists and that you can write.",
            field="html",
        ) from None
