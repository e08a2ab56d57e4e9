"""References to secrets, which the configuration has instead of passwords."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cdc.errors import SecretError
from schemas.redaction import SHORTEST, keep_secret

_REFERENCE = re.compile(r"\$\{(?:(?P<env>[A-Za-z_][A-Za-z0-9_]*)|file:(?P<file>/[^{}]+))\}")
_PATTERN = r"^\$\{([A-Za-z_][A-Za-z0-9_]*|file:/[^{}]+)\}$"


@dataclass(frozen=True)
class SecretRef:
    """A reference to a secret. The secret is read only when it is used.

    Args:
        kind: ``env`` for an environment variable, ``file`` for a file.
        name: Name of the variable, or absolute path of the file.
    """

    kind: Literal["env", "file"]
    name: str

    def __str__(self) -> str:
        return f"${{{self.name}}}" if self.kind == "env" else f"${{file:{self.name}}}"

    @classmethod
    def parse(cls, text: str) -> SecretRef:
        """Parse ``${NAME}`` or ``${file:/absolute/path}``.

        Raises:
            SecretError: The text has another format. The error does not contain the text, since the
                text could be the secret itself.
        """
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise SecretError(
                "a secret is given in plain text, or its reference is malformed",
                remedy="Write ${NAME} for an environment variable, or ${file:/path} for a file.",
            )
        if match["env"]:
            return cls("env", match["env"])
        return cls("file", match["file"])

    def resolve(self) -> str:
        """Read and return the secret, without a line break at the end of the secret's file.

        From then on, this process removes the secret from its errors and logs.

        Raises:
            SecretError: The variable is not set, the file cannot be read, or the secret is empty.
        """
        value = self.read()
        keep_secret(value)
        return value

    def read(self) -> str:
        """Read and return the secret. Errors and logs can show it, unlike after ``resolve``.

        Raises:
            SecretError: As for ``resolve``.
        """
        if self.kind == "env":
            value = os.environ.get(self.name, "")
            if not value:
                raise SecretError(
                    f"environment variable {self.name} is not set or is empty",
                    remedy=f"Export {self.name} with the secret before starting tributary.",
                    field=self.name,
                )
            return value
        try:
            value = Path(self.name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SecretError(
                f"secret file {self.name} cannot be read: {reason}",
                remedy="Create the file, readable by the user who runs tributary.",
                field=self.name,
            ) from None
        value = value.removesuffix("\n").removesuffix("\r")
        if not value:
            raise SecretError(
                f"secret file {self.name} is empty",
                remedy="Write the secret into the file.",
                field=self.name,
            )
        return value

    def connect_reference(self) -> str:
        """Return the reference that a ConfigProvider of Kafka Connect replaces by this secret.

        Source: https://kafka.apache.org/documentation/#config_providers
        """
        if self.kind == "env":
            return f"${{env:{self.name}}}"
        path = PurePosixPath(self.name)
        return f"${{directory:{path.parent}:{path.name}}}"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validate_secret, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "pattern": _PATTERN,
            "description": "A reference: ${NAME} or ${file:/path}. Never the secret itself.",
        }


def expand(text: str, *, secret: bool = False) -> str:
    """Replace each ``${NAME}`` and ``${file:/path}`` in a configured string by its value.

    ``$${`` means a literal ``${``.

    Args:
        text: The string, with any number of references.
        secret: Whether the values are secrets, which errors and logs must not show.

    Raises:
        SecretError: A reference does not resolve.
    """

    def replacement(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        reference = SecretRef.parse(match[0])
        return reference.resolve() if secret else reference.read()

    return re.sub(r"\$?" + _REFERENCE.pattern, replacement, text)


def fold(text: str, written: str) -> str:
    """Replace values in a message by the configuration's references, the reverse of ``expand``.

    Args:
        text: The message.
        written: A string that contains the references, for example the configuration file. A value
            of fewer than four characters is not replaced.
    """
    values: dict[str, str] = {}
    for match in _REFERENCE.finditer(written):
        with contextlib.suppress(SecretError):
            values[SecretRef.parse(match[0]).read()] = match[0]
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SHORTEST:
            text = text.replace(value, values[value])
    return text


def files_in(text: str) -> list[Path]:
    """Return the files to which Tributary's references in a configured string point."""
    found = (SecretRef.parse(match[0]) for match in _REFERENCE.finditer(text))
    return [Path(one.name) for one in found if one.kind == "file"]


def is_reference(text: str) -> bool:
    """Return whether a configured string has a reference of Tributary or of Kafka Connect."""
    return re.search(r"\$\{[^{}]+\}", text) is not None


def is_only_references(text: str) -> bool:
    """Return whether a configured string consists only of references of Tributary."""
    return not _REFERENCE.sub("", text)


def _validate_secret(value: object) -> SecretRef:
    """Parse a configured reference to a secret for pydantic. The error does not show the input."""
    if isinstance(value, SecretRef):
        return value
    try:
        return SecretRef.parse(value if isinstance(value, str) else "")
    except SecretError as error:
        raise PydanticCustomError(
            "plain_secret", "{message}", {"message": _message_with_remedy(error)}
        ) from None


def _message_with_remedy(error: SecretError) -> str:
    """Return an error about a configured secret as one text, with its remedy."""
    return f"{error.message}. {error.remedy}"
