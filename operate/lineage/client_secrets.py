"""Remembers the secrets in the settings of OpenLineage's client before the client reads them.

The client logs settings that it cannot use, and its errors contain addresses with logins. Messages
leave out secrets that are remembered.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import yaml

from cdc.config.value_types import is_sensitive
from cdc.errors import ConfigError
from schemas.redaction import keep_secret

_PREFIX = "OPENLINEAGE_"
_FILE = "openlineage.yml"
_API_KEY = re.compile(r"api[-_]?key|authorization", re.IGNORECASE)
_LOGINS = (
    re.compile(r"(?:^|//)[^/@:\s]*:(?P<password>[^/@\s]+)@"),
    # A password with `/` or `@` that was not escaped: up to the last `@`.
    re.compile(r"(?:^|//)[^/@:\s]*:(?P<password>\S+)@"),
)


def keep_client_secrets() -> None:
    """Remember the secrets in the environment variables and settings file of OpenLineage's client.

    Raises:
        ConfigError: The file cannot be read, or is not YAML. The client would log the file's lines.
    """
    for name, value in os.environ.items():
        if name.startswith(_PREFIX):
            _keep_secrets_of_variable(name.removeprefix(_PREFIX), value)
    if (file := _settings_file()) is not None:
        _keep_secrets_of_settings(_read_settings_file(file))


def _keep_secrets_of_variable(name: str, value: str) -> None:
    """Remember the secrets in the value of an environment variable of OpenLineage's client."""
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
        # The client takes such a value for JSON, and logs the whole of it.
        if any(one in value for one in "{}[]"):
            keep_secret(value)
    # A secret can consist of digits. In a variable's name, two underscores separate the keys.
    _keep_secrets_of_settings(
        value if isinstance(parsed, (int, float)) else parsed, name.rpartition("__")[2]
    )


def _keep_secrets_of_settings(settings: object, key: str = "") -> None:
    """Remember the secrets in settings of OpenLineage's client, at any depth."""
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            _keep_secrets_of_settings(value, str(name))
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            _keep_secrets_of_settings(value, key)
    elif isinstance(settings, str):
        if is_sensitive(key) or _API_KEY.search(key):
            keep_secret(settings)
        for login in filter(None, (one.search(settings) for one in _LOGINS)):
            keep_secret(unquote(login["password"]))
            keep_secret(login["password"])


def _settings_file() -> Path | None:
    """Return the file of settings that OpenLineage's client reads; None if there is none.

    The client looks in three places. The first readable file counts.
    """
    named = os.environ.get("OPENLINEAGE_CONFIG")
    places = [Path(named)] if named else []
    places += [Path(_FILE), Path("~/.openlineage").expanduser() / _FILE]
    return next((one for one in places if one.is_file() and os.access(one, os.R_OK)), None)


def _read_settings_file(file: Path) -> object:
    """Read the YAML file with the settings of OpenLineage's client."""
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        at = getattr(error, "problem_mark", None)
        where = "" if at is None else f", line {at.line + 1}"
        raise ConfigError(
            f"{file}{where} is not valid YAML, or cannot be read",
            remedy="Correct the file; docs/lineage.md says what it is for.",
            field=_FILE,
        ) from None
