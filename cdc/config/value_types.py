"""The base class of the configuration's sections, and the types of single settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A section of the configuration. Its values are read-only; an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True)
class Verbatim:
    """Marks a setting whose references to secrets stay as they are when the file is read."""


@dataclass(frozen=True)
class RawOptions:
    """Marks a map of settings for another program, in which each secret must be a reference."""


# Continuations in names of harmless settings, for example a token's provider, file or age.
_ABOUT = (
    r"(?:(?:providers?|source|file|path|location|binding|service|class|impl|type|mechanism|endpoint"
    r"|ur[il]|scope|id|enabled?|fallback|expiry|lifetime|interval|ratio|timeout|ms)(?![a-z]))"
)
# Continuations that must follow directly: later in the name they can be part of an account's name.
_NEXT = (
    r"[._-]?(?:(?:files?|(?:driver|executor)\.file|name|binary)(?![a-z.])|itemkey|bit_?length"
    r"|role|fetch|retry|renew|confregex)"
)
# Names of secrets of Kafka's clients, Connect's plugins, Hadoop's file systems and Spark.
_SENSITIVE = re.compile(
    rf"password|passwd|secret(?!{_NEXT})|private[._-]?key|jaas|user\.info|key\.pem"
    r"|keystore\.key(?![a-z])"
    # S3A's setting of that name, which with SSE-C has the key itself.
    r"|encryption\.key(?![a-z])"
    # Azure's storage keys and shared access signatures, mostly followed by the account's name.
    r"|account\.key(?![a-z])|\.sas\.(?!token\.provider|token\.renew|expiry)"
    r"|(?<!enable\.delegation\.)(?<!cancel\.delegation\.)"
    rf"(?:token|credential)(?!iz|secret|s?[._-]?{_ABOUT}|s?{_NEXT}|.*[._-]{_ABOUT})",
    re.IGNORECASE,
)


# Spark on Kubernetes: these settings name a secret that the cluster mounts. A name is no secret.
_NAMED_ON_KUBERNETES = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\.")


def is_sensitive(key: str) -> bool:
    """Return whether a setting has a secret value, judged by a name such as ``sasl.password``.

    The setting belongs to another program, such as Spark or Kafka's clients. If in doubt, the
    result is True. A secret value must be given as a reference, and no message shows the value.
    """
    return _SENSITIVE.search(key) is not None and not _NAMED_ON_KUBERNETES.match(key)


def _option_text(value: object) -> object:
    """Return a configured number or boolean as a string, for example True as ``true``.

    Any other value is returned unchanged.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _absolute_path(path: Path, info: ValidationInfo) -> Path:
    """Return a configured path as an absolute path.

    A relative path starts at the folder of tributary.yaml.
    """
    base = (info.context or {}).get("base") or Path.cwd()
    return Path(base, path.expanduser()).absolute()


# In URLs of Azure's file systems, the part before the @ is a container.
_CONTAINER = re.compile(r"(?:abfss?|wasbs?)://[^/?#:@]*@(?![^/?#]*@)", re.IGNORECASE)


# A password can have a slash; a number after a colon is a port.
_LOGIN = re.compile(r"[^/]*//(?:[^/?#]*@|[^/:@]+:(?!\d+(?:/|$))[^@]*@)")


def _url_without_login(url: str) -> str:
    """Return a configured URL; refuse it if it contains a login."""
    if _LOGIN.match(url) and not _CONTAINER.match(url):
        raise PydanticCustomError(
            "url_login", "the URL contains a login; use the keys username and password instead"
        )
    return url


def _servers_without_login(text: str) -> str:
    """Return the configured list of brokers; refuse it if it contains a login."""
    if "@" in text:
        raise PydanticCustomError(
            "servers_login", "it contains a login; use kafka.security instead"
        )
    return text


def _http_url(url: str) -> str:
    """Return a configured URL of HTTP without slashes at its end.

    A URL is refused if it does not begin with ``http://`` or ``https://``, or if it has parameters.
    """
    if not re.match(r"https?://[^/]", url):
        raise PydanticCustomError("url_scheme", "the URL must begin with http:// or https://")
    if re.search(r"[?#]", url):
        raise PydanticCustomError(
            "url_parameters", "the URL has parameters, which are not supported; remove them"
        )
    return url.rstrip("/")


def defaults() -> Any:
    """Return an empty map, the default of a section that tributary.yaml lacks.

    pydantic validates this map like a section of the file, and fills in the defaults.
    """
    return {}


NonEmpty = Annotated[str, Field(min_length=1)]
FilePath = Annotated[Path, AfterValidator(_absolute_path)]
HttpUrl = Annotated[str, AfterValidator(_url_without_login), AfterValidator(_http_url)]
Servers = Annotated[str, Field(min_length=1), AfterValidator(_servers_without_login)]
LoginFreeUrl = Annotated[str, Field(min_length=1), AfterValidator(_url_without_login)]
OptionText = Annotated[
    str, BeforeValidator(_option_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Options = Annotated[Mapping[str, OptionText], RawOptions(), Field(repr=False)]
Port = Annotated[int, Field(ge=1, le=65535)]
Positive = Annotated[int, Field(ge=1)]
Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[smhd]$")]
"""A time like 90s, 30m, 1h or 2d."""

Size = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}(MiB|GiB|TiB)$")]
"""A number of bytes like 512MiB, 20GiB or 1TiB."""

_UNITS_BYTES = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(duration: str) -> int:
    """Convert a configured :data:`Duration`, such as ``30m``, to seconds."""
    return int(duration[:-1]) * _UNITS_S[duration[-1]]


def bytes_of(size: str) -> int:
    """Convert a configured :data:`Size`, such as ``20GiB``, to bytes."""
    return int(size[:-3]) * _UNITS_BYTES[size[-3:]]
