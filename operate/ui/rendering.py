"""Renders the page's templates: everything is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError
from operate.render import seconds, to_paste
from schemas.redaction import redact_own

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
ASSETS: Mapping[str, str] = {
    "ui.css": "text/css",
    "ui.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
}
"""The files that pages load, with their types; all are in this package."""


def lacking(package: str) -> ConfigError:
    """Return the error for a Python package of the extra ``ui`` that is not installed."""
    return ConfigError(
        f"the Python package {package} is not installed, which the page needs",
        remedy="Install the extra: `pip install 'tributary-cdc[ui]'`.",
        field=package,
    )


def asset(name: str) -> bytes:
    """Return the content of one of `ASSETS`, the files that the page loads."""
    return (_HERE / "static" / name).read_bytes()


class Pages:
    """The templates of the page and of the report.

    Raises:
        ConfigError: Jinja is not installed.
    """

    def __init__(self) -> None:
        try:
            from jinja2 import Environment, FileSystemLoader, StrictUndefined
        except ImportError:
            raise lacking("jinja2") from None
        found: Environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_without_secrets,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        found.filters |= {
            "moment": moment,
            "iso": iso,
            "duration": seconds,
            "bytes": size,
            "parts": parts,
        }
        found.globals["asset_version"] = self.asset_version
        self._environment = found

    @cached_property
    def asset_version(self) -> str:
        """A text that changes with the files of `ASSETS`, so that browsers use no old files."""
        digest = hashlib.sha256(b"".join(asset(name) for name in ASSETS))
        return digest.hexdigest()[:12]

    def render(self, template: str, **values: Any) -> str:
        """Return a template's HTML.

        Args:
            template: The file in the folder ``templates``.
            values: The template's variables.
        """
        return self._environment.get_template(template).render(**values)


def _without_secrets(value: Any) -> Any:
    """Return a template's value; if the value is a text, remove this process's secrets from it."""
    return redact_own(value) if type(value) is str else value


def parts(text: str) -> list[str]:
    """Return a text of the page, split at its backquotes; parts 2, 4, ... are commands or names."""
    return to_paste(text).split("`")


def moment(at: datetime) -> str:
    """Return a time as text for viewers of the page, in UTC."""
    return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def iso(at: datetime) -> str:
    """Return a time for the attribute ``datetime`` in the page's HTML."""
    return f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def size(count: int) -> str:
    """Return a number of bytes as the page shows it, for example ``1.5 GiB``."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.0f} {_UNITS[unit]}" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"
