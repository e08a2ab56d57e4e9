"""The configurations of connectors that result from settings."""

from __future__ import annotations

from typing import Any

from cdc.debezium import CaptureNames, connector_config, names
from tests.unit.cdc.configuration import full, minimal, read


def made(document: dict[str, Any]) -> tuple[dict[str, str], CaptureNames]:
    """The connector of the document's source, and the names of its capture."""
    config = read(document)
    source = config.sources["shop"]
    made = connector_config("shop", source, "default", config.kafka, config.connect)
    return made, names("shop", source)


def with_connect(**settings: Any) -> dict[str, Any]:
    """A configuration with all settings that appear in a connector's configuration."""
    document = minimal()
    whole = full()
    document["sources"] = whole["sources"]
    document["kafka"]["registry"] = whole["kafka"]["registry"]
    document["connect"] = {"url": "https://connect.example.com", **settings}
    return document


def plain() -> tuple[dict[str, str], CaptureNames]:
    """A connector by default settings of ``connect``."""
    return made(with_connect())
