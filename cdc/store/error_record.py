"""The stored form of an error, which remains after the process that raised the error has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.store.documents import Part
from schemas.errors import TributaryError


@dataclass(frozen=True)
class ErrorRecord(Part):
    """The stored form of an error.

    Neither the error nor its stored form contains a secret.

    Args:
        error: Name of the error's class.
        message: The error's message.
        remedy: The next step for a person.
        context: The names in the message, each under its kind: a table's name, for example, is
            under ``table``.
    """

    error: str
    message: str
    remedy: str
    context: Mapping[str, str]

    @classmethod
    def of(cls, error: TributaryError) -> ErrorRecord:
        """Return the stored form of an error."""
        return cls(**error.to_dict())
